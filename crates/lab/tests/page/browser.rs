//! A headless Chromium, driven over the pipes of its `--remote-debugging-pipe` (DevTools protocol: JSON messages, each ended by a zero
//! byte). No port is opened and no client library needed: the browser reads its file descriptor 3 and writes 4, which a shell makes of
//! its standard input and output.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    next: u64,
    session: String,
    /// What came between the answers.
    events: VecDeque<Value>,
    profile: PathBuf,
}

impl Browser {
    /// Starts Chromium with an empty profile. A missing Chromium fails the test: `scripts/setup` installs it.
    pub fn start() -> Browser {
        let profile = std::env::temp_dir().join(
            format!("mote-lab-page-{}-{:?}", std::process::id(), Instant::now())
                .replace([' ', '{', '}', ':', ','], ""),
        );
        std::fs::create_dir_all(&profile).unwrap();
        let program = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".to_string());
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", &program])
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-extensions",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-default-apps",
                "--disable-sync",
                "--hide-scrollbars",
            ])
            .args(["--remote-debugging-pipe", "--force-device-scale-factor=1"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let to = process.stdin.take().unwrap();
        let out = process.stdout.take().unwrap();
        let (send, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0) {
                let Ok(message) = message else { return };
                if send.send(serde_json::from_slice(&message).expect("the browser writes JSON")).is_err() {
                    return;
                }
            }
        });
        let mut browser =
            Browser { process, to, from, next: 0, session: String::new(), events: VecDeque::new(), profile };
        let targets = browser.call("Target.getTargets", json!({}));
        let target = targets["targetInfos"]
            .as_array()
            .unwrap()
            .iter()
            .find(|target| target["type"] == "page")
            .expect("a page")["targetId"]
            .clone();
        let session = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = session["sessionId"].as_str().unwrap().to_string();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method of the protocol and waits for its answer.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.to
            .write_all(&bytes)
            .and_then(|()| self.to.flush())
            .expect("Chromium is running; scripts/setup installs it");
        loop {
            let answer = self.from.recv_timeout(PATIENCE).unwrap_or_else(|e| {
                panic!("no answer to {method} from Chromium ({e}); scripts/setup installs it")
            });
            if answer["id"] == json!(id) {
                assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push_back(answer);
        }
    }

    /// Opens a file and waits until it is loaded.
    pub fn open(&mut self, file: &Path) {
        self.events.clear();
        self.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        let began = Instant::now();
        while self.eval("document.readyState") != json!("complete")
            || self.eval("location.protocol") != json!("file:")
        {
            assert!(began.elapsed() < PATIENCE, "the page does not load");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The value of an expression in the page. An exception fails the test.
    pub fn eval(&mut self, expression: &str) -> Value {
        let result = self.call(
            "Runtime.evaluate",
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true }),
        );
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// The strings of an expression that gives an array of them.
    pub fn strings(&mut self, expression: &str) -> Vec<String> {
        let value = self.eval(expression);
        value
            .as_array()
            .unwrap_or_else(|| panic!("{expression} gives {value}"))
            .iter()
            .map(|one| one.as_str().unwrap().to_string())
            .collect()
    }

    /// A click of the mouse in the middle of the first element that matches: what covers it would get the click.
    pub fn click(&mut self, selector: &str) {
        let place = self.eval(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center', behavior: 'instant'}});
               const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2, r.width * r.height]; }})()"
        ));
        assert!(place[2].as_f64().unwrap() > 0.0, "{selector} cannot be seen");
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// A key, pressed and released.
    pub fn key(&mut self, key: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            self.call(
                "Input.dispatchKeyEvent",
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code }),
            );
        }
    }

    /// Chooses an option of a select, as a user's choice is told to the page.
    pub fn choose(&mut self, selector: &str, value: &str) {
        let chosen = self.eval(&format!(
            "(() => {{ const s = document.querySelector({selector:?}); s.value = {value:?}; s.dispatchEvent(new Event('change', {{bubbles: true}})); return s.value; }})()"
        ));
        assert_eq!(chosen, json!(value), "{selector} has no such option");
    }

    /// Sets the width and height of the window, and whether it is a phone's.
    pub fn size(&mut self, width: u32, height: u32, phone: bool) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone }),
        );
    }

    /// What the system prefers: `light` or `dark`; and nothing that moves, for a click must hit where an element was found.
    pub fn prefer(&mut self, scheme: &str) {
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }, { "name": "prefers-reduced-motion", "value": "reduce" }] }),
        );
    }

    /// A picture of a part of the page, from `top` on and `height` high, into `$MOTE_LAB_SCREENSHOTS` when that is set.
    pub fn screenshot(&mut self, name: &str, top: u32, height: u32) {
        let Some(folder) = std::env::var_os("MOTE_LAB_SCREENSHOTS") else { return };
        self.eval("scrollTo({top: 0, behavior: 'instant'})");
        let width = self.eval("innerWidth");
        let clip = json!({ "x": 0, "y": top, "width": width, "height": height, "scale": 1 });
        let shot =
            self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true, "clip": clip }));
        let folder = PathBuf::from(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), decode(shot["data"].as_str().unwrap())).unwrap();
    }

    /// Requests that the page made since it was opened, but for itself; and what it wrote to the console, threw or was refused.
    pub fn complaints(&mut self) -> Vec<String> {
        // An answer comes after all events before it.
        self.eval("new Promise(done => setTimeout(done, 100))");
        let mut complaints = Vec::new();
        for event in &self.events {
            let params = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Network.requestWillBeSent" if params["type"] != "Document" => {
                    complaints.push(format!("request: {}", params["request"]["url"]))
                }
                "Runtime.consoleAPICalled" => complaints.push(format!("console: {}", params["args"])),
                "Runtime.exceptionThrown" => {
                    complaints.push(format!("exception: {}", params["exceptionDetails"]))
                }
                "Log.entryAdded" => complaints.push(format!("log: {}", params["entry"])),
                "Page.javascriptDialogOpening" => complaints.push(format!("dialog: {}", params["message"])),
                _ => {}
            }
        }
        complaints
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

/// RFC 4648 base64, as the protocol sends pictures.
fn decode(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<u32> = text
        .bytes()
        .filter_map(|byte| ALPHABET.iter().position(|one| *one == byte))
        .map(|digit| digit as u32)
        .collect();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for chunk in digits.chunks(4) {
        let group = chunk.iter().fold(0, |group, digit| group << 6 | digit) << (6 * (4 - chunk.len()));
        bytes.extend_from_slice(&group.to_be_bytes()[1..chunk.len()]);
    }
    bytes
}
