// What a page remembers is a list of texts. A browser may refuse to keep anything, and another page of the same server
// may write there what it likes: all that is no such list is as if never kept.

export function recall(key) {
  try {
    const kept = JSON.parse(localStorage.getItem(key));
    return Array.isArray(kept) ? kept.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}

export function keep(key, answers) {
  try {
    localStorage.setItem(key, JSON.stringify(answers));
  } catch {}
}
