// JSON values in the browser's storage, which may be disabled or full.

export class KeptValues {
  /** open: returns the storage; browsers that allow none throw. */
  constructor(open) {
    try {
      this.storage = open();
      this.storage.setItem("jaxserve.probe", "");
      this.storage.removeItem("jaxserve.probe");
      this.isAvailable = true;
    } catch {
      this.storage = null;
      this.isAvailable = false;
    }
  }

  /** The value, or null if there is none that can be read. */
  read(key) {
    try {
      return JSON.parse(this.storage.getItem(key));
    } catch {
      return null;
    }
  }

  /** Whether the value is now stored. */
  write(key, value) {
    try {
      this.storage.setItem(key, JSON.stringify(value));
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
