// Numbers as people read them, and elements without a line of HTML: whatever a span is called stays text.

const $ = (id) => document.getElementById(id);

function seconds(ns) {
  if (ns === null || ns === undefined) return '-';
  const size = Math.abs(ns);
  if (size >= 1e12) return Math.round(ns / 1e9).toLocaleString('en') + ' s';
  for (const [scale, unit] of [[1e9, 's'], [1e6, 'ms'], [1e3, 'us']]) {
    if (size >= scale) return Number((ns / scale).toPrecision(3)) + ' ' + unit;
  }
  return size === 0 ? '0' : Number(ns.toPrecision(3)) + ' ns';
}

function bytes(count) {
  if (count === null || count === undefined) return '-';
  for (const [scale, unit] of [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']]) {
    if (Math.abs(count) >= scale) return Number((count / scale).toPrecision(3)) + ' ' + unit;
  }
  return Math.round(count) + ' B';
}

function share(part) {
  return part >= 0.1 || part === 0 ? Math.round(part * 100) + ' %' : (part * 100).toFixed(1) + ' %';
}

const whole = (count) => count.toLocaleString('en');

function element(tag, options, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(options || {})) {
    if (value === undefined || value === null) continue;
    if (key === 'class') made.className = value;
    else if (key === 'on') for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
    else if (key === 'width') made.style.width = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function put(target, ...children) {
  target.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

const swatch = (kind) => element('i', { class: 'swatch ' + kind, 'aria-hidden': 'true' });
