// JSON values in the browser's storage, which may be disabled or full.

export class JsonStorage {
  /** open: returns the storage; browsers that allow none throw. */
  constructor(open) {
    try {
      this.storage = open();
      this.isAvailable = this.storage.length >= 0; // true; a storage that is full is available, too
    } catch {
      this.storage = null;
      this.isAvailable = false;
    }
  }

  /** The value, or null if there is none that can be read. */
  read(key) {
    try {
      return JSON.parse(this.readText(key));
    } catch {
      return null;
    }
  }

  /** Whether the value is now stored. */
  write(key, value) {
    return this.writeText(key, JSON.stringify(value));
  }

  readText(key) {
    return this.storage?.getItem(key) ?? null;
  }

  writeText(key, text) {
    try {
      this.storage.setItem(key, text);
      return true;
    } catch {
      return false;
    }
  }

  remove(key) {
    this.storage?.removeItem(key);
  }

  keys(prefix) {
    return this.storage ? Object.keys(this.storage).filter((key) => key.startsWith(prefix)) : [];
  }
}
