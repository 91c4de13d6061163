// The rank test of the library's comparison/rank_test.py, and what it is made from: repeats, blocks, correction.

const RULES = { ratio: 1.1, p: 0.002, repeats: 7, floor: 20e3, quickest: 1.05 };

const waysKnown = new Map();

function ways(m, n) {
  const key = m + 'x' + n;
  if (!waysKnown.has(key)) {
    const found = new Float64Array(m * n + 1);
    found[0] = 1;
    for (let i = 1; i <= m; i++) {
      for (let at = m * n; at >= n + i; at--) found[at] -= found[at - n - i];
      for (let at = i; at <= m * n; at++) found[at] += found[at - i];
    }
    waysKnown.set(key, found);
  }
  return waysKnown.get(key);
}

function choose(total, taken) {
  let found = 1;
  for (let i = 1; i <= taken; i++) found = found * (total - taken + i) / i;
  return found;
}

function complementaryError(x) {
  // erfc for x >= 0: Abramowitz and Stegun 7.1.26 is too coarse for small p, so a continued fraction beyond 2.
  if (x < 2) {
    let term = x, sum = x;
    for (let n = 1; n < 60; n++) { term *= -x * x / n; sum += term / (2 * n + 1); }
    return 1 - 2 / Math.sqrt(Math.PI) * sum;
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (x + fraction);
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + fraction);
}

function rankTest(first, second) {
  const m = first.length, n = second.length;
  if (!m || !n) return 1;
  let above = 0;
  for (const a of first) for (const b of second) above += a > b ? 1 : a === b ? 0.5 : 0;
  const counts = new Map();
  for (const value of [...first, ...second]) counts.set(value, (counts.get(value) || 0) + 1);
  const ties = [...counts.values()].some((count) => count > 1);
  if (m * n <= 576 && !ties) { // beyond, the counts leave what a double holds exactly
    const found = ways(m, n);
    let sum = 0;
    for (let at = 0; at <= Math.min(above, m * n - above); at++) sum += found[at];
    return Math.min(1, 2 * sum / choose(m + n, n));
  }
  const size = m + n;
  const tied = [...counts.values()].reduce((sum, count) => sum + count ** 3 - count, 0) / (size * (size - 1));
  const variance = m * n / 12 * (size + 1 - tied);
  if (variance <= 0) return 1;
  return complementaryError(Math.max(0, Math.abs(above - m * n / 2) - 0.5) / Math.sqrt(variance) / Math.SQRT2);
}

function holm(values) {
  const order = values.map((_, at) => at).sort((a, b) => values[a] - values[b]);
  const corrected = values.map(() => 1);
  let largest = 0;
  order.forEach((at, rank) => {
    largest = Math.max(largest, Math.min(1, (values.length - rank) * values[at]));
    corrected[at] = largest;
  });
  return corrected;
}

function median(values) {
  const ordered = [...values].sort((a, b) => a - b), half = ordered.length >> 1;
  return ordered.length % 2 ? ordered[half] : (ordered[half - 1] + ordered[half]) / 2;
}

// Every top-level span is a repeat; what happened in it is taken together by path of names.
function collectRepeats(profile) {
  const found = new Map(), paths = [], roots = new Int32Array(profile.count), sums = new Map();
  const begun = profile.head.begun_unix_ns || 0;
  for (let at = 0; at < profile.count; at++) {
    const parent = profile.parent[at], name = profile.nameOf(at);
    if (parent < 0) {
      paths[at] = [name];
      roots[at] = at;
    } else {
      roots[at] = roots[parent];
      paths[at] = paths[parent].includes(name) ? paths[parent] : [...paths[parent], name];
      if (paths[at] === paths[parent]) continue;
    }
    const key = roots[at] + '\u0000' + paths[at].join('\u0000');
    const row = sums.get(key) || { path: paths[at], start: begun + profile.start[roots[at]], calls: [] };
    row.calls.push(profile.duration(at));
    sums.set(key, row);
  }
  for (const row of sums.values()) {
    // Their number times the 25th percentile: those that the system held up do not stand for the others.
    row.total = row.calls.length * row.calls.sort((a, b) => a - b)[row.calls.length >> 2];
    const key = row.path.join('\u0000');
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(row);
  }
  return found;
}

function interleave(first, second) {
  const marked = [...first.map((row) => [row.start, row.total, 0]), ...second.map((row) => [row.start, row.total, 1])];
  marked.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const sides = [[], []];
  let row = [];
  marked.forEach(([, total, side], at) => {
    row.push(total);
    if (at + 1 === marked.length || marked[at + 1][2] !== side) {
      sides[side].push(row.reduce((a, b) => a + b, 0) / row.length);
      row = [];
    }
  });
  return sides;
}

function compareProfiles(before, after) {
  const sides = [collectRepeats(before), collectRepeats(after)];
  const rows = [], tested = [];
  for (const [key, found] of sides[0]) {
    const path = found[0].path;
    if (!sides[1].has(key)) {
      rows.push({ path, before: median(found.map((row) => row.total)), after: null, repeats: [found.length, 0], verdict: 'inconclusive', reason: 'only in the first profile' });
      continue;
    }
    const [first, second] = interleave(found, sides[1].get(key));
    const row = { path, before: median(first), after: median(second), repeats: [first.length, second.length], verdict: 'inconclusive', reason: '', first, second };
    const fewest = Math.min(first.length, second.length);
    if (fewest < RULES.repeats) row.reason = (fewest < 2 ? 'no' : 'only ' + fewest) + ' interleaved repeats, and it takes ' + RULES.repeats;
    else if (Math.max(row.before, row.after) < RULES.floor) row.reason = 'below ' + seconds(RULES.floor) + ' a repeat';
    else tested.push(row);
    rows.push(row);
  }
  for (const [key, found] of sides[1]) {
    if (!sides[0].has(key)) rows.push({ path: found[0].path, before: null, after: median(found.map((row) => row.total)), repeats: [0, found.length], verdict: 'inconclusive', reason: 'only in the second profile' });
  }
  const corrected = holm(tested.map((row) => rankTest(row.first, row.second)));
  tested.forEach((row, at) => {
    row.p = corrected[at];
    const low = Math.min(row.before, row.after), high = Math.max(row.before, row.after);
    if (high < RULES.ratio * low) row.reason = 'the medians differ by less than ' + RULES.ratio + 'x';
    else if (high - low < RULES.floor) row.reason = 'the medians differ by less than ' + seconds(RULES.floor);
    else if (!(row.p < RULES.p)) {
      const best = tested.length * Math.min(1, 2 / choose(row.first.length + row.second.length, row.second.length));
      row.reason = best >= RULES.p ? 'too few repeats for a verdict on ' + tested.length + ' spans at once' : 'it may be chance (p = ' + row.p.toPrecision(2) + ')';
    } else {
      const verdict = row.after > row.before ? 'slower' : 'faster', quickest = Math.min(...row.second) / Math.max(Math.min(...row.first), 1e-9);
      if (verdict === 'slower' ? quickest >= RULES.quickest : quickest <= 1 / RULES.quickest) {
        row.verdict = verdict;
        row.reason = 'p = ' + row.p.toPrecision(2);
      } else row.reason = verdict + ', but not where it was quickest: others may have been using the machine';
    }
  });
  return rows.sort((a, b) => Math.max(b.before || 0, b.after || 0) - Math.max(a.before || 0, a.after || 0));
}
