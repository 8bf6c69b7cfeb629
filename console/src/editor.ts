// The editor, which is loaded when the first file is opened.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { css } from "@codemirror/lang-css";
import { html } from "@codemirror/lang-html";
import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { markdown } from "@codemirror/lang-markdown";
import { python } from "@codemirror/lang-python";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { styleNonce } from "./policy";

const languages: Record<string, () => any> = {
  py: python, js: javascript, mjs: javascript, jsx: () => javascript({ jsx: true }), ts: () => javascript({ typescript: true }),
  tsx: () => javascript({ typescript: true, jsx: true }), json, md: markdown, yaml, yml: yaml, css, html, htm: html,
};

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.modifier], color: "var(--code-key)" }, { tag: [tags.string, tags.special(tags.string)], color: "var(--code-text)" },
  { tag: [tags.comment], color: "var(--muted)", fontStyle: "italic" }, { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: [tags.function(tags.variableName), tags.definition(tags.variableName), tags.propertyName, tags.heading, tags.tagName], color: "var(--code-name)" },
]);

/** edit shows a text, and returns what reads it and what takes it away. */
export function edit(parent: HTMLElement, name: string, text: string, readOnly: boolean, save: () => void, changed: () => void) {
  const language = languages[name.split(".").pop()!.toLowerCase()];
  const view = new EditorView({ parent, state: EditorState.create({ doc: text, extensions: [
    EditorView.cspNonce.of(styleNonce), lineNumbers(), history(), highlightSpecialChars(), drawSelection(), indentOnInput(), bracketMatching(),
    highlightActiveLine(), highlightSelectionMatches(), syntaxHighlighting(colours), EditorState.readOnly.of(readOnly),
    EditorView.contentAttributes.of({ "aria-label": "Content of the file" }),
    keymap.of([{ key: "Mod-s", run: () => { save(); return true; } }, ...defaultKeymap, ...historyKeymap, ...searchKeymap, indentWithTab]),
    EditorView.updateListener.of((u) => { if (u.docChanged) changed(); }),
    ...(language ? [language()] : []),
  ] }) });
  return { text: () => view.state.doc.toString(), close: () => view.destroy() };
}
