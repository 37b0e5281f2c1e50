/**
 * Elements, made and updated. Text goes in as text nodes and attributes only, never as markup: names and
 * reasons come from peers.
 *
 * @module
 */
/// <reference lib="dom" />

/** Attributes; undefined and false leave one out, true gives it no value. */
export type Attributes = Readonly<Record<string, string | number | boolean | undefined>>;

/** What an element holds. */
export type Child = Node | string;

/** Sets an attribute where it differs. */
export function setAttribute(
  element: Element,
  name: string,
  value: string | number | boolean | undefined,
): void {
  if (value === undefined || value === false) element.removeAttribute(name);
  else {
    const text = value === true ? "" : String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

function fill(element: Element, attributes: Attributes, children: readonly Child[]): void {
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  element.append(...children);
}

/** An HTML element. */
export function html<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

/** An SVG element. */
export function svg<Tag extends keyof SVGElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[Tag] {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, attributes, children);
  return element;
}

/** The element of that id in the page, which has it. */
export function byId<E extends HTMLElement = HTMLElement>(id: string): E {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no element #${id}`);
  return element as E;
}

/** Sets an element's text where it differs, so that nothing is announced or selected anew. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Shows or hides an element. */
export function show(element: HTMLElement, visible: boolean): void {
  if (element.hidden === visible) element.hidden = !visible;
}

/**
 * Makes a parent's children those of a list, in its order: elements of keys that stay are kept, with
 * their focus; the others are made or removed.
 *
 * @param key Tells items apart.
 * @param create Makes an item's element.
 * @param update Brings an element up to date.
 */
export function reconcile<Item, E extends HTMLElement | SVGElement>(
  parent: Element,
  items: readonly Item[],
  key: (item: Item) => string,
  create: (item: Item) => E,
  update: (element: E, item: Item) => void,
): void {
  const old = new Map<string, E>();
  for (const child of [...parent.children] as E[]) old.set(child.dataset["key"] ?? "", child);
  let at: Element | null = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let element = old.get(name);
    if (element === undefined) {
      element = create(item);
      element.dataset["key"] = name;
    }
    old.delete(name);
    update(element, item);
    if (element === at) at = at.nextElementSibling;
    else parent.insertBefore(element, at);
  }
  for (const gone of old.values()) gone.remove();
}
