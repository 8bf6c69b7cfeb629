// What makes the libraries fit a Content-Security-Policy without unsafe-inline. It must be imported
// first.

/** The nonce with which style elements count. */
export const styleNonce = document.body.dataset.styleNonce ?? "";
delete document.body.dataset.styleNonce;

// The terminal makes style elements, and gives colours as style attributes. The policy blocks both.
// A style element with the nonce counts, and a style that is set by script always does.
const createElement = document.createElement.bind(document);
document.createElement = ((name: string, options?: ElementCreationOptions) => {
  const made = createElement(name, options);
  if (name === "style") made.setAttribute("nonce", styleNonce);
  return made;
}) as typeof document.createElement;

const setAttribute = Element.prototype.setAttribute;
Element.prototype.setAttribute = function (this: Element, name: string, value: string) {
  if (name === "style" && (this instanceof HTMLElement || this instanceof SVGElement)) this.style.cssText = value;
  else setAttribute.call(this, name, value);
};
