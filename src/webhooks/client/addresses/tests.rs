use std::cell::Cell;

use futures_util::poll;
use tokio::sync::oneshot;

use super::*;

fn resolve(addresses: &Addresses, host: &str, port: u16) -> Result<Vec<SocketAddr>, CallError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(addresses.resolve(host, port))
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_service_is_where_the_map_says() {
    let addresses = Addresses {
        fixed: BTreeMap::from([("hooks.infra.svc:443".to_owned(), address("127.0.0.1:9443"))]),
        ..Addresses::default()
    };
    assert_eq!(
        resolve(&addresses, "Hooks.infra.svc", 443),
        Ok(vec![address("127.0.0.1:9443")])
    );
    assert_eq!(resolve(&addresses, "::1", 443), Ok(vec![address("[::1]:443")]));
}

#[test]
fn addresses_outside_the_list_are_refused_however_they_are_found() {
    let addresses = Addresses {
        fixed: BTreeMap::from([("a.b.svc:443".to_owned(), address("192.0.2.1:443"))]),
        allowed: Some(vec!["10.0.0.0/8".parse().unwrap()]),
        ..Addresses::default()
    };
    for (host, refused) in [
        ("a.b.svc", "192.0.2.1:443"),
        ("192.0.2.2", "192.0.2.2:443"),
        ("::ffff:192.0.2.2", "[::ffff:192.0.2.2]:443"),
    ] {
        assert_eq!(
            resolve(&addresses, host, 443),
            Err(CallError::Forbidden(address(refused))),
            "{host}"
        );
    }
    assert!(resolve(&addresses, "10.1.2.3", 443).is_ok());
    assert!(resolve(&addresses, "::ffff:10.1.2.3", 443).is_ok());
}

#[test]
fn others_reach_this_host_only_where_it_is_named() {
    let addresses = |fixed: &[(&str, &str)], allowed: Option<&[&str]>| Addresses {
        fixed: fixed
            .iter()
            .map(|(name, to)| ((*name).to_owned(), address(to)))
            .collect(),
        allowed: allowed.map(|all| all.iter().map(|one| one.parse().unwrap()).collect()),
        own: vec![address("127.0.0.1:8443")],
        is_guarded: true,
    };
    let free = addresses(&[], None);
    for host in [
        "127.0.0.1",
        "127.8.8.8",
        "localhost",
        "LOCALHOST",
        "::1",
        "0.0.0.0",
        "0.0.0.1",
        "::",
        "::ffff:127.0.0.1",
        "::ffff:0.0.0.0",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fe80::1",
        "febf::1",
    ] {
        let found = resolve(&free, host, 443);
        assert!(
            matches!(found, Err(CallError::OnThisHost(_))),
            "{host}: {found:?}"
        );
        // A network that holds everything names nothing.
        let wide = addresses(&[], Some(&["0.0.0.0/0", "::/0"]));
        let found = resolve(&wide, host, 443);
        assert!(
            matches!(found, Err(CallError::OnThisHost(_))),
            "{host}: {found:?}"
        );
    }
    for host in [
        "10.0.0.1",
        "192.0.2.1",
        "2001:db8::1",
        "fd00::1",
        "64:ff9b::a00:1",
    ] {
        assert!(resolve(&free, host, 443).is_ok(), "{host}");
    }
    let named = addresses(&[("hook.svc:443", "127.0.0.1:9443")], None);
    assert!(resolve(&named, "hook.svc", 443).is_ok());
    // The name is not the address.
    assert!(matches!(
        resolve(&named, "127.0.0.1", 9443),
        Err(CallError::OnThisHost(_))
    ));
    let listed = addresses(&[], Some(&["127.0.0.0/8", "169.254.1.1/32", "::1/128"]));
    for (host, expected) in [
        ("127.0.0.1", true),
        ("169.254.1.1", true),
        ("::1", true),
        ("10.0.0.1", false),
    ] {
        assert_eq!(resolve(&listed, host, 443).is_ok(), expected, "{host}");
    }
    assert!(matches!(
        resolve(&listed, "169.254.169.254", 443),
        Err(CallError::OnThisHost(_))
    ));
    // Never itself, under any name.
    for addresses in [&listed, &addresses(&[("me.svc:443", "127.0.0.1:8443")], None)] {
        let found = [
            resolve(addresses, "127.0.0.1", 8443),
            resolve(addresses, "me.svc", 443),
        ];
        assert!(
            found
                .iter()
                .any(|found| matches!(found, Err(CallError::Itself(_)))),
            "{found:?}"
        );
    }
}

#[test]
fn the_gateway_is_not_called_by_itself() {
    let listening = |own: &str| Addresses {
        own: vec![address(own)],
        ..Addresses::default()
    };
    for (own, host, port) in [
        ("127.0.0.1:8443", "127.0.0.1", 8443),
        ("127.0.0.1:8443", "0.0.0.0", 8443),
        ("127.0.0.1:8443", "::ffff:127.0.0.1", 8443),
        ("0.0.0.0:8443", "127.0.0.1", 8443),
        ("[::]:8443", "127.0.0.1", 8443),
    ] {
        let found = resolve(&listening(own), host, port);
        assert!(
            matches!(found, Err(CallError::Itself(_))),
            "{own} {host}: {found:?}"
        );
    }
    for (own, host, port) in [
        ("127.0.0.1:8443", "127.0.0.1", 8444),
        ("127.0.0.1:8443", "127.0.0.2", 8443),
        ("0.0.0.0:8443", "192.0.2.1", 8443),
    ] {
        assert!(resolve(&listening(own), host, port).is_ok(), "{own} {host}");
    }
}

#[test]
fn a_name_whose_servers_are_silent_is_asked_for_once_however_many_calls_give_up() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (resolution, asked) = (Resolution::default(), Cell::new(0));
        let (answer, answered) = oneshot::channel();
        let mut answered = Some(answered);
        let mut get = || {
            resolution.get(|| {
                asked.set(asked.get() + 1);
                let answered = answered.take().unwrap();
                async move { answered.await.unwrap() }
            })
        };
        for _ in 0..100 {
            let mut given_up = get();
            assert!(poll!(&mut given_up).is_pending());
        }
        let waiting = get();
        let address = SocketAddr::from(([192, 0, 2, 1], 443));
        answer.send(Ok(vec![address])).unwrap();
        assert_eq!(waiting.await, Ok(vec![address]));
        assert_eq!(get().await, Ok(vec![address]), "a moment ago");
        assert_eq!(asked.get(), 1);
    });
}

#[test]
fn a_failure_is_not_kept() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let resolution = Resolution::default();
        assert_eq!(
            resolution.get(|| async { Err(CallError::Runtime) }).await,
            Err(CallError::Runtime)
        );
        assert_eq!(resolution.get(|| async { Ok(Vec::new()) }).await, Ok(Vec::new()));
    });
}

#[test]
fn takes_a_url_apart() {
    let url = Url::parse("HTTPS://Hooks.example.com/a//b/./c/../d/?x=1").unwrap();
    assert_eq!(
        (url.host(), url.port(), url.path()),
        ("Hooks.example.com", 443, "/a/b/d")
    );
    assert_eq!(url.host_port(), "Hooks.example.com:443");
    let url = Url::parse("https://[::1]:8443").unwrap();
    assert_eq!((url.host(), url.port(), url.path()), ("::1", 8443, "/"));
    assert_eq!(url.host_port(), "[::1]:8443");
    assert_eq!(
        Url::of_service("ns", "svc", 8443, "/x").unwrap().host_port(),
        "svc.ns.svc:8443"
    );
}

#[test]
fn a_path_is_written_as_go_writes_it() {
    for (path, expected) in [
        ("", "/"),
        ("?a=/b", "/"),
        ("/a%2fb", "/a/b"),
        ("/%41", "/A"),
        ("/a b!\u{e9}", "/a%20b%21%C3%A9"),
        ("/$&+,:;=@-_.~", "/$&+,:;=@-_.~"),
        ("/a/%2e%2e/b#c", "/b"),
    ] {
        let url = Url::parse(&format!("https://a{path}")).unwrap();
        assert_eq!(url.path(), expected, "{path}");
    }
}

#[test]
fn refuses_what_is_no_webhook() {
    for url in [
        "",
        "http://a",
        "a",
        "/a",
        "https://",
        "https://u@a/",
        "https://a:0/",
        "https://a:65536/",
        "https://a b/",
        "https://a/%",
        "https://a/%+1",
        "https://a/%zz",
    ] {
        assert!(Url::parse(url).is_err(), "{url}");
    }
}

#[test]
fn tells_the_timeout_as_go_prints_it() {
    let table = [
        (Duration::from_secs(3), "3s"),
        (Duration::from_secs(30), "30s"),
        (Duration::from_millis(1_500), "1.5s"),
        (Duration::from_millis(500), "500ms"),
        (Duration::from_micros(1_500), "1.5ms"),
        (Duration::from_nanos(1_500), "1.5\u{b5}s"),
        (Duration::from_nanos(7), "7ns"),
        (Duration::from_secs(60), "1m0s"),
        (Duration::from_secs(3_661), "1h1m1s"),
    ];
    for (timeout, expected) in table {
        assert_eq!(go_duration(timeout), expected);
    }
    let url = Url::parse("https://a/b").unwrap();
    assert_eq!(
        url.with_timeout(Duration::from_secs(10)),
        "https://a/b?timeout=10s"
    );
    assert_eq!(url.with_timeout(Duration::ZERO), "https://a/b");
}
