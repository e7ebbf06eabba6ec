//! Webhooks behind the gateway: the extra cost of a call through it, compared with a
//! direct call.
//!
//! There is one connection and one review at a time, so that latency is the time of a
//! review and not the length of a queue. Gateway and webhook share core 0.

use super::generator::{Client, Measure};
use super::median;
use super::options::Options;
use super::server::Server;
use super::setup::CHAIN;
use super::workload::REVIEW;

/// Measures both in turn, in one run, and prints the difference between them.
pub(crate) fn measure(client: &Client, floor: &Server, gateway: &Server, options: &Options) {
    let path = |path: &str| vec![path.to_owned()];
    for (name, direct, through) in [
        (
            "one webhook",
            path("/hook/validate"),
            path("/validate/one?timeout=10s"),
        ),
        ("ten mutating webhooks", chain(), path("/mutate/ten?timeout=10s")),
    ] {
        println!("\n{name}:");
        let (mut directs, mut throughs) = (Vec::new(), Vec::new());
        for round in 1..=options.rounds {
            let one = client.measure_one_by_one(floor, &direct, REVIEW, options.turn());
            println!("round {round}: directly {one}");
            directs.push(one);
            let one = client.measure_one_by_one(gateway, &through, REVIEW, options.turn());
            println!("round {round}: through  {one}");
            throughs.push(one);
        }
        summarise(&directs, &throughs);
    }
}

fn chain() -> Vec<String> {
    (0..CHAIN)
        .map(|number| format!("/hook/mutate/{number}"))
        .collect()
}

fn summarise(directs: &[Measure], throughs: &[Measure]) {
    let between = |of: fn(&Measure) -> f64| median(throughs, of) - median(directs, of);
    println!(
        "through - directly: p50 {:.0} us, p99 {:.0} us",
        between(|m| m.p50),
        between(|m| m.p99)
    );
    let ratio = |of: fn(&Measure) -> f64| median(throughs, of) / median(directs, of);
    println!(
        "through / directly: p50 {:.2}, p99 {:.2}",
        ratio(|m| m.p50),
        ratio(|m| m.p99)
    );
}
