// Elements that live as long as what they stand for: animations, focus and selections survive updates.

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element. */
export function svg(name, attributes = {}, children = []) {
  const element = document.createElementNS(SVG, name);
  set(element, attributes);
  element.append(...children);
  return element;
}

/** An HTML element. */
export function html(name, attributes = {}, children = []) {
  const element = document.createElement(name);
  set(element, attributes);
  element.append(...children);
  return element;
}

/** Sets the attributes that changed. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    const text = String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
  return element;
}

/** Sets the text, if it changed. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
  return element;
}

/** Makes the children of `parent` stand for `items`, in order: `make(item)` a new one, `update(element, item)` each. */
export function keyed(parent, items, key, make, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let element = known.get(name);
    known.delete(name);
    if (!element) {
      element = make(item);
      element.dataset.key = name;
    }
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
    update(element, item);
  }
  for (const element of known.values()) element.remove();
}
