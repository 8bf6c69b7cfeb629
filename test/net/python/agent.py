"""Asks two models by their vendors' SDKs, with whatever keys the environment holds."""
import os

import anthropic
import openai

messages = [{"role": "user", "content": "Hello?"}]

a = anthropic.Anthropic(max_retries=0)
print("anthropic", a.messages.create(model="m", max_tokens=10, messages=messages).content[0].text)
with a.messages.stream(model="m", max_tokens=10, messages=messages) as stream:
    print("anthropic", "".join(stream.text_stream))

o = openai.OpenAI(max_retries=0)
print("openai", o.chat.completions.create(model="m", messages=messages).choices[0].message.content)
chunks = o.chat.completions.create(model="m", messages=messages, stream=True)
print("openai", "".join(c.choices[0].delta.content or "" for c in chunks))
print("keys", os.environ["ANTHROPIC_API_KEY"], os.environ["OPENAI_API_KEY"])
