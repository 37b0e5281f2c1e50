// A headless Chromium for tests of the status page, where there is one.
import { assertEquals, AssertionError } from "@std/assert";
import axe from "axe-core";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";

const EXECUTABLE = "/usr/bin/chromium";

/** How long something on the page may take that takes milliseconds when nothing is wrong. */
const PATIENCE_MS = 30_000;

async function isThere(): Promise<boolean> {
  try {
    return (await Deno.stat(EXECUTABLE)).isFile;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

const able = await isThere();

/** A test that needs the browser; skipped by name where there is none. */
export function browserTest(name: string, fn: () => Promise<void>): void {
  const why = able ? "" : ` (skipped: no ${EXECUTABLE})`;
  Deno.test({ name: `browser: ${name}${why}`, ignore: !able, fn });
}

/** A page that is watched: what it asks for, what it complains of. */
export class WatchedPage {
  readonly page: Page;
  /** Console errors and uncaught ones. */
  readonly errors: string[] = [];
  /** Requests to other origins than the page's own. */
  readonly elsewhere: string[] = [];

  constructor(page: Page, origin: string) {
    this.page = page;
    page.setDefaultTimeout(PATIENCE_MS);
    page.on("console", (message) => {
      if (message.type() === "error") this.errors.push(message.text());
    });
    page.on("pageerror", (error) => this.errors.push(error.message));
    page.on("dialog", (dialog) => {
      this.errors.push(`a dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("request", (request) => {
      if (new URL(request.url()).origin !== origin) this.elsewhere.push(request.url());
    });
  }

  /** The text of an element, white space as one sees it. */
  async text(selector: string): Promise<string> {
    return (await this.page.innerText(selector)).replaceAll(/\s+/g, " ").trim();
  }

  /** Waits until an element's text matches. */
  async shows(selector: string, text: string | RegExp): Promise<void> {
    try {
      await this.page.locator(selector).filter({ hasText: text, visible: true }).first().waitFor();
    } catch (error) {
      const found = await this.page.locator(selector).allInnerTexts();
      throw new AssertionError(
        `${selector} does not show ${text} but ${JSON.stringify(found)}: ${error}`,
      );
    }
  }

  /** Fails when anything was asked of elsewhere, or went wrong. */
  assertQuiet(): void {
    assertEquals(this.errors, []);
    assertEquals(this.elsewhere, []);
  }

  /** Fails when the page is wider than the window. */
  async assertFits(): Promise<void> {
    const [wide, window] = await this.page.evaluate<[number, number]>(
      "[document.documentElement.scrollWidth, innerWidth]",
    );
    assertEquals(wide, window, "the page scrolls to the side");
  }

  /** Fails when axe-core finds a serious fault. */
  async assertAccessible(): Promise<void> {
    // The page's policy keeps scripts from elsewhere out; evaluating is the debugger's own.
    await this.page.evaluate(axe.source);
    const { violations } = await this.page.evaluate<axe.AxeResults>(
      "axe.run(document, { resultTypes: ['violations'] })",
    );
    const serious = violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
    assertEquals(serious, []);
  }
}

/** A browser of its own, without a past; gone at the end of an `await using` block. */
export class TestBrowser implements AsyncDisposable {
  readonly #browser: Browser;

  private constructor(browser: Browser) {
    this.#browser = browser;
  }

  /** Starts one, with an empty profile that is removed with it. */
  static async start(): Promise<TestBrowser> {
    return new TestBrowser(
      await chromium.launch({
        executablePath: EXECUTABLE,
        headless: true,
        args: [
          ...["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
          ...["--disable-background-networking", "--disable-component-update", "--disable-sync"],
        ],
      }),
    );
  }

  /** Opens the page of a controller, and waits until it is connected. */
  async open(http: string, options: BrowserContextOptions = {}): Promise<WatchedPage> {
    const context = await this.#browser.newContext({
      viewport: { width: 1280, height: 900 },
      ...options,
    });
    const watched = new WatchedPage(await context.newPage(), `http://${http}`);
    await watched.page.goto(`http://${http}/`);
    return watched;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#browser.close();
  }
}
