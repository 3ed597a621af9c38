// What outlives a reload of the page: in this tab alone, and gone with it.

const KEY = "vigil.key", SESSION = "vigil.session", STORY = "vigil.story";

function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

function write(name, value) {
  try {
    if (value === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false; // full, or forbidden: the page goes on, a reload starts afresh
  }
}

export const keep = {
  key: () => read(KEY),
  setKey: (key) => write(KEY, key),
  /** {id, token, seq, began}: how to come back, and the wall clock (ms) of media time 0. */
  session: () => read(SESSION),
  setSession: (session) => write(SESSION, session),
  /** What was on the page. */
  story: () => read(STORY),
  setStory: (story) => write(STORY, story),
};
