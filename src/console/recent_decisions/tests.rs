use super::*;

fn mk_recent(decisions: u64, bytes: usize, chunk: usize) -> RecentDecisions {
    RecentDecisions::within(DecisionLimits {
        decisions,
        bytes,
        chunk,
    })
}

fn shown(slice: &DecisionSlice) -> Vec<(u64, String)> {
    let text = |line: &[u8]| String::from_utf8(line.to_vec()).unwrap();
    slice
        .iter()
        .map(|kept| (kept.sequence, text(kept.line)))
        .collect()
}

/// Each way of reading against a list of everything that was pushed.
#[test]
fn the_newest_are_kept_in_their_order_whatever_the_size_of_chunks() {
    for (decisions, chunk) in [(1, 1), (3, 4), (5, 7), (10, 1), (10, 100), (100, 9)] {
        let recent = mk_recent(decisions, usize::MAX, chunk);
        let mut all: Vec<(u64, String)> = Vec::new();
        assert!(recent.since(0).is_empty());
        for number in 1..=40_u64 {
            let line = "x".repeat(usize::try_from(number % 5).unwrap()) + &number.to_string();
            recent.push(Decision::Allow, "c", format!("{line}\n").as_bytes());
            all.push((number, line));
            let oldest = number.saturating_sub(decisions) + 1;
            for from in [0, 1, oldest, number - 1, number, number + 1] {
                let slice = recent.since(from);
                let expected: Vec<_> = all
                    .iter()
                    .filter(|(sequence, _)| *sequence >= from.max(slice.first()))
                    .cloned()
                    .collect();
                assert_eq!(shown(&slice), expected, "{decisions} {chunk} {number} {from}");
                assert_eq!(slice.len(), expected.len() as u64);
                // Whole chunks go: a chunk's worth fewer may be there, never more.
                assert!(slice.len() <= decisions);
                assert_eq!(slice.next(), slice.first().max(number + 1));
                let mut reversed: Vec<_> = slice.iter().rev().map(|kept| kept.sequence).collect();
                reversed.reverse();
                assert_eq!(reversed, expected.iter().map(|(at, _)| *at).collect::<Vec<_>>());
            }
            assert_eq!(recent.newest(), number);
            assert_eq!(
                recent.find(number),
                Some(all.last().unwrap().1.clone().into_bytes())
            );
            assert_eq!(recent.find(number + 1), None);
            assert_eq!(recent.find(oldest - 1), None);
        }
    }
}

#[test]
fn as_many_are_kept_as_are_wanted() {
    let recent = mk_recent(10, usize::MAX, 8);
    for _ in 0..100 {
        recent.push(Decision::Deny, "c", b"12345");
    }
    assert_eq!(recent.since(0).len(), 10);
}

#[test]
fn bytes_are_bounded_however_many_decisions_are_wanted() {
    let recent = mk_recent(u64::MAX, 1000, 100);
    for _ in 0..10_000 {
        recent.push(Decision::Allow, "c", &[b'x'; 60]);
        let kept = recent.kept();
        assert!(kept.bytes <= 1000);
        let text: usize = kept.sealed.iter().map(|chunk| chunk.text.len()).sum();
        assert_eq!(kept.bytes, text + kept.current.text.len());
    }
    assert!(recent.since(0).len() >= 10);
    // A line that is larger than a chunk has one for itself.
    recent.push(Decision::Allow, "c", &[b'y'; 500]);
    let slice = recent.since(0);
    assert_eq!(slice.iter().next_back().unwrap().line.len(), 500);
    assert!(recent.kept().bytes <= 1000);
}

#[test]
fn what_is_being_read_stays_while_others_go() {
    let recent = mk_recent(4, usize::MAX, 10);
    for number in 0..4 {
        recent.push(Decision::Allow, "c", format!("line {number}").as_bytes());
    }
    let slice = recent.since(0);
    let before = shown(&slice);
    for _ in 0..50 {
        recent.push(Decision::Deny, "c", b"another");
    }
    assert_eq!(shown(&slice), before);
    assert_eq!(recent.since(2).first(), 51);
}

#[test]
fn decisions_are_counted_by_cluster_and_the_clusters_are_bounded() {
    let recent = mk_recent(1, 100, 100);
    for (decision, cluster) in [
        (Decision::Allow, "east"),
        (Decision::Deny, "west"),
        (Decision::Deny, "east"),
        (Decision::NoOpinion, "east"),
    ] {
        recent.push(decision, cluster, b"x");
    }
    let counts = |cluster: &str| {
        let clusters = recent.clusters();
        let found = clusters.iter().find(|found| *found.cluster == *cluster);
        found.map(|found| found.counts)
    };
    assert_eq!(counts("east"), Some([1, 1, 1]));
    assert_eq!(counts("west"), Some([0, 1, 0]));
    for number in 0..1000 {
        recent.push(Decision::Allow, &format!("c{number}"), b"x");
    }
    assert_eq!(recent.clusters().len(), MAX_CLUSTERS + 1);
    assert_eq!(counts(OTHER), Some([1000 - 254, 0, 0]));
    assert_eq!(counts("c0"), Some([1, 0, 0]));
}
