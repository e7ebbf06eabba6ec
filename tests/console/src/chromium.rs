//! Headless Chromium, with a profile of its own that goes with it.

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use thirtyfour::{By, Capabilities, Key, WebDriver};
use tokio::runtime::Runtime;

use crate::harness::client::Client;
use crate::harness::folder::Folder;
use crate::harness::process::Process;
use crate::harness::{PATIENCE, eventually, ports};
use crate::webdriver::Transport;

/// Runs in each page before anything of the page does: keeps what the browser objects to.
const WATCH: &str = "
window.__violations = [];
document.addEventListener('securitypolicyviolation', event =>
    window.__violations.push(event.effectiveDirective + ' ' + event.blockedURI + ' ' + event.sample));
window.addEventListener('error', event => window.__violations.push('error: ' + event.message), true);
";

/// No network but what the test opens, no sandbox (CI is root), nothing kept.
const ARGUMENTS: [&str; 14] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    // Chromium ends when its driver does, however that ends.
    "--remote-debugging-pipe",
];

/// The programs that the tests start.
pub(crate) struct Programs {
    chromium: PathBuf,
    chromedriver: PathBuf,
}

/// A window of a browser.
pub(crate) struct Browser {
    driver: Option<WebDriver>,
    runtime: Runtime,
    // Dropped in this order: the driver before its folder.
    chromedriver: Process,
    _folder: Folder,
}

/// Chromium and its driver, from `PATH`.
///
/// Without them, says on the standard error (past the capture of test output) what is not run,
/// and returns `None`.
///
/// # Panics
/// Without them, when `PORTCULLIS_REQUIRE_CHROMIUM` is `1`.
pub(crate) fn find() -> Option<Programs> {
    let found = || {
        Some(Programs {
            chromium: program("chromium")?,
            chromedriver: program("chromedriver")?,
        })
    };
    found().or_else(|| {
        not_run(
            "no chromium and chromedriver in PATH; install Debian's packages chromium and chromium-driver",
        );
        None
    })
}

/// Says why a test is not run.
///
/// # Panics
/// When `PORTCULLIS_REQUIRE_CHROMIUM` is `1`.
pub(crate) fn not_run(why: &str) {
    let thread = std::thread::current();
    let message = format!("NOT RUN: {}: {why}", thread.name().unwrap_or("a test"));
    let required = env::var("PORTCULLIS_REQUIRE_CHROMIUM").is_ok_and(|value| value == "1");
    assert!(!required, "{message}");
    let _ = writeln!(std::io::stderr(), "{message}");
}

fn program(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

impl Browser {
    /// Starts one; `None` without the programs.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts one with further arguments; `None` without the programs.
    pub(crate) fn start_with(arguments: &[&str]) -> Option<Self> {
        Some(Self::open_with(&find()?, arguments))
    }

    fn open_with(programs: &Programs, arguments: &[&str]) -> Self {
        let folder = Folder::new("chromium");
        let address = ports::free();
        let chromedriver = Process::start(
            "chromedriver",
            folder.path(),
            None,
            &programs.chromedriver,
            [format!("--port={}", address.port())],
        );
        let client = Client::http(address);
        let ready = eventually(|| client.get("/status").is_ok_and(|answer| answer.status == 200));
        assert!(ready, "{}", chromedriver.tail());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let session = WebDriver::builder(
            format!("http://{address}"),
            capabilities(&programs.chromium, folder.path(), arguments),
        )
        .client(Transport(client))
        .connect();
        let driver = runtime
            .block_on(session)
            .unwrap_or_else(|error| panic!("{error}\n{}", chromedriver.tail()));
        let browser = Self {
            driver: Some(driver),
            runtime,
            chromedriver,
            _folder: folder,
        };
        browser.devtools("Page.addScriptToEvaluateOnNewDocument", &json!({"source": WATCH}));
        browser
    }

    fn driver(&self) -> &WebDriver {
        self.driver.as_ref().unwrap()
    }

    /// A command of the DevTools protocol.
    pub(crate) fn devtools(&self, method: &str, parameters: &Value) -> Value {
        let devtools = self.driver().cdp();
        let sent = devtools.send_raw(method, parameters);
        self.runtime
            .block_on(sent)
            .unwrap_or_else(|error| panic!("{method}: {error}\n{}", self.chromedriver.tail()))
    }

    /// Opens an address and waits until it is loaded.
    pub(crate) fn open(&self, url: &str) {
        self.runtime
            .block_on(self.driver().goto(url))
            .unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        self.runtime.block_on(self.driver().current_url()).unwrap().into()
    }

    /// What a function's body returns in the page; its `arguments` are these.
    pub(crate) fn script(&self, body: &str, arguments: &[Value]) -> Value {
        let ran = self.driver().execute(body, arguments.to_vec());
        self.runtime
            .block_on(ran)
            .unwrap_or_else(|error| panic!("{body}: {error}"))
            .json()
            .clone()
    }

    /// The same of a function that hands its result to its last argument.
    pub(crate) fn script_with_callback(&self, body: &str, arguments: &[Value]) -> Value {
        let ran = self.driver().execute_async(body, arguments.to_vec());
        self.runtime
            .block_on(ran)
            .unwrap_or_else(|error| panic!("{error}"))
            .json()
            .clone()
    }

    /// Waits until a JavaScript expression is true in the page.
    ///
    /// # Panics
    /// When it does not become so; with the page's text.
    pub(crate) fn wait_until(&self, expression: &str) {
        let body = format!("return !!({expression});");
        assert!(
            eventually(|| self.script(&body, &[]) == true),
            "in vain: {expression}\n{}\n{}",
            self.url(),
            self.text()
        );
    }

    /// What the page shows.
    pub(crate) fn text(&self) -> String {
        let text = self.script("return document.body.innerText;", &[]);
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks what a CSS selector finds first.
    pub(crate) fn click(&self, selector: &str) {
        let clicked = async {
            let element = self.driver().find(By::Css(selector)).await?;
            element.scroll_into_view().await?;
            element.click().await
        };
        self.runtime
            .block_on(clicked)
            .unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    /// Types into what a CSS selector finds first, in place of what is there.
    pub(crate) fn fill(&self, selector: &str, text: &str) {
        let typed = async {
            let element = self.driver().find(By::Css(selector)).await?;
            element.clear().await?;
            element.send_keys(text).await
        };
        self.runtime
            .block_on(typed)
            .unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    /// Pastes into what a CSS selector finds first, in place of what is there: many lines at once.
    pub(crate) fn paste(&self, selector: &str, text: &str) {
        let body = "document.querySelector(arguments[0]).value = arguments[1];";
        self.script(body, &[json!(selector), json!(text)]);
    }

    /// Presses a key in whatever has the focus.
    pub(crate) fn press(&self, key: Key) {
        let keys = self.driver().action_chain().send_keys(key);
        self.runtime.block_on(keys.perform()).unwrap();
    }

    /// Gives the page so much room, in CSS pixels.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            &json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}),
        );
    }

    /// Prefers a dark or a light page, and no motion.
    pub(crate) fn prefer(&self, scheme: &str) {
        self.devtools(
            "Emulation.setEmulatedMedia",
            &json!({"features": [
                {"name": "prefers-color-scheme", "value": scheme},
                {"name": "prefers-reduced-motion", "value": "reduce"},
            ]}),
        );
    }

    /// Runs no script of any page from now on, or does so again.
    pub(crate) fn disable_scripts(&self, disable: bool) {
        self.devtools("Emulation.setScriptExecutionDisabled", &json!({"value": disable}));
    }

    /// A PNG of what is in view.
    pub(crate) fn screenshot(&self) -> Vec<u8> {
        let shot = self.devtools(
            "Page.captureScreenshot",
            &json!({"format": "png", "optimizeForSpeed": false}),
        );
        STANDARD.decode(shot["data"].as_str().unwrap()).unwrap()
    }

    /// What the browser has logged since the last time: violations, failed loads, errors.
    pub(crate) fn log(&self) -> Vec<String> {
        let entries = self.runtime.block_on(self.driver().get_log("browser")).unwrap();
        let text = |entry: thirtyfour::BrowserLogEntry| format!("{} {}", entry.level, entry.message);
        entries.into_iter().map(text).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            // What does not end now ends with its driver.
            let _ended = self.runtime.block_on(driver.quit());
        }
    }
}

fn capabilities(chromium: &Path, folder: &Path, more: &[&str]) -> Capabilities {
    let mut arguments: Vec<String> = [&ARGUMENTS, more]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect();
    arguments.push(format!("--user-data-dir={}", folder.join("profile").display()));
    let capabilities = json!({
        "browserName": "chrome",
        "goog:chromeOptions": {"binary": chromium, "args": arguments},
        "goog:loggingPrefs": {"browser": "ALL"},
        "timeouts": {
            "script": Duration::as_millis(&PATIENCE) as u64,
            "pageLoad": Duration::as_millis(&PATIENCE) as u64,
        },
    });
    let Value::Object(capabilities) = capabilities else {
        unreachable!()
    };
    capabilities.into()
}

#[test]
fn a_page_is_opened_read_and_left() {
    let Some(browser) = Browser::start() else { return };
    browser.open("data:text/html,<title>t</title><input id=i><p>one");
    assert_eq!(browser.text().trim(), "one");
    browser.fill("#i", "two");
    assert_eq!(
        browser.script("return document.getElementById('i').value;", &[]),
        "two"
    );
    browser.prefer("dark");
    let dark = "return matchMedia('(prefers-color-scheme: dark)').matches;";
    assert_eq!(browser.script(dark, &[]), true);
    browser.resize(360, 800);
    assert_eq!(browser.script("return innerWidth;", &[]), 360);
    // What the tests rely on: a violation is noticed, and scripts can be switched off.
    let page = "data:text/html,<meta http-equiv=Content-Security-Policy content=\"default-src 'self'\"><script>1</script>";
    browser.open(page);
    assert_eq!(browser.script("return window.__violations.length;", &[]), 1);
    assert_eq!(browser.log().len(), 1);
    browser.disable_scripts(true);
    browser.open("data:text/html,<p>off<script>document.body.textContent = 'on'</script>");
    assert_eq!(browser.text().trim(), "off");
}
