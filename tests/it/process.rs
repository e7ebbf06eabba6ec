//! The program under signals.

use std::fs;

use crate::support::{Builder, JANE_GETS, get, request, until, v1};

#[test]
fn sigterm_answers_what_is_in_flight_and_ends_with_0() {
    let mut process = Builder::new().spawn();
    let whole = request(
        "POST /authorize HTTP/1.1\r\nContent-Type: application/json",
        v1(JANE_GETS).as_bytes(),
    );
    let (half, rest) = whole.split_at(whole.len() - 10);
    let mut slow = process.connect();
    slow.send(half);
    let in_flight = r#"portcullis_in_flight_requests{endpoint="authorize"} 1"#;
    until("it is in flight", || {
        get(process.admin, "/metrics").1.contains(in_flight)
    });
    let mut open = process.connect();

    process.signal("TERM");
    until("readiness fails", || get(process.admin, "/readyz").0 == 503);
    assert_eq!(open.authorize(v1(JANE_GETS)).header("connection"), Some("close"));
    slow.send(rest);
    assert_eq!(slow.receive().unwrap().json()["status"]["allowed"], true);
    assert_eq!(process.wait().code(), Some(0));
    let log = fs::read_to_string(process.file("decisions.log")).unwrap();
    assert_eq!(log.lines().count(), 2, "{log}");
}

#[test]
fn sighup_reads_the_files_and_opens_the_log_anew() {
    let process = Builder::new().spawn();
    let mut connection = process.connect();
    let ask = v1(r#"{"user":"jane","nonResourceAttributes":{"path":"/openapi/v2","verb":"get"}}"#);
    assert_eq!(connection.authorize(&ask).json()["status"]["allowed"], true);
    let log = process.file("decisions.log");
    until("the line is written", || {
        fs::read_to_string(&log).unwrap().lines().count() == 1
    });
    fs::rename(&log, process.file("decisions.1")).unwrap();
    fs::write(process.file("policies/all.yaml"), "# none\n").unwrap();
    process.signal("HUP");
    until("the policies are gone", || {
        connection.authorize(&ask).json()["status"]["allowed"] == false
    });
    until("the new file is written", || log.exists());
    let reloads = r#"portcullis_reloads_total{result="success"}"#;
    assert!(!get(process.admin, "/metrics").1.contains(&format!("{reloads} 0")));
}

#[test]
fn memory_is_returned_after_a_burst() {
    const BODY: usize = 16 << 20;
    let process = Builder::new().spawn();
    let before = process.memory();
    let head = format!(
        "POST /authorize?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {BODY}\r\n\r\n"
    );
    let unfinished = vec![b' '; BODY - 1];
    let mut burst: Vec<_> = (0..12).map(|_| process.connect()).collect();
    std::thread::scope(|scope| {
        for connection in &mut burst {
            let (head, unfinished) = (&head, &unfinished);
            scope.spawn(move || {
                connection.send(head.as_bytes());
                connection.send(unfinished);
            });
        }
    });
    until("the bodies are there", || process.memory() > before + 150);
    drop(burst);
    until("their memory went back", || process.memory() < before + 50);
}

/// As when the runtime that reads a container's standard error is stuck.
#[test]
fn a_log_that_nobody_reads_delays_no_answer() {
    let mut process = Builder::new().spawn_unread();
    let mut connection = process.connect();
    let is_dropping = |admin| {
        let metrics = get(admin, "/metrics").1;
        let dropped = metrics
            .lines()
            .find_map(|line| line.strip_prefix("portcullis_log_dropped_total "));
        dropped.unwrap().parse::<u64>().unwrap() > 0
    };
    let mut answered = 0;
    while !is_dropping(process.admin) {
        for _ in 0..50 {
            assert_eq!(
                connection.authorize(v1(JANE_GETS)).json()["status"]["allowed"],
                true
            );
        }
        answered += 50;
        assert!(answered < 100_000, "nothing is dropped");
    }
    assert_eq!(
        connection.authorize(v1(JANE_GETS)).json()["status"]["allowed"],
        true
    );
    process.signal("TERM");
    assert_eq!(process.wait().code(), Some(0));
}

#[test]
fn a_reload_says_which_settings_and_files_changed() {
    let process = Builder::new().spawn();
    let config = fs::read_to_string(process.file("config.yaml")).unwrap();
    let before = "limits: {}";
    assert!(config.contains(before), "{config}");
    fs::write(
        process.file("config.yaml"),
        config.replace(before, "limits: {inFlight: 99}"),
    )
    .unwrap();
    let next = process.authority().server();
    fs::write(process.file("server.key"), next.key_pem()).unwrap();
    fs::write(process.file("server.crt"), next.pem()).unwrap();
    process.signal("HUP");
    let files = "of certificates or credentials changed (";
    for said in ["configuration changed (limits.inFlight)", files] {
        until(said, || process.log().contains(said));
    }
    let log = process.log();
    let line = log.lines().find(|line| line.contains(files)).unwrap();
    assert!(line.contains("server.crt"), "{line}");
}
