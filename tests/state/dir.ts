// A directory for one test.

export class TempDir implements Disposable {
  readonly path = Deno.makeTempDirSync();

  /** The files of a folder in it, sorted. */
  names(folder = "."): string[] {
    return [...Deno.readDirSync(`${this.path}/${folder}`)].map(({ name }) => name).sort();
  }

  [Symbol.dispose](): void {
    Deno.removeSync(this.path, { recursive: true });
  }
}
