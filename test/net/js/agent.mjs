// Asks two models by their vendors' SDKs, with whatever keys the environment holds.
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'

const messages = [{ role: 'user', content: 'Hello?' }]

const anthropic = new Anthropic({ maxRetries: 0 })
console.log('anthropic', (await anthropic.messages.create({ model: 'm', max_tokens: 10, messages })).content[0].text)
const stream = anthropic.messages.stream({ model: 'm', max_tokens: 10, messages })
console.log('anthropic', await stream.finalText())

const openai = new OpenAI({ maxRetries: 0 })
console.log('openai', (await openai.chat.completions.create({ model: 'm', messages })).choices[0].message.content)
let text = ''
for await (const chunk of await openai.chat.completions.create({ model: 'm', messages, stream: true })) text += chunk.choices[0]?.delta?.content ?? ''
console.log('openai', text)
console.log('keys', process.env.ANTHROPIC_API_KEY, process.env.OPENAI_API_KEY)
