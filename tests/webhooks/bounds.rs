//! What an object may become, by policies and by webhooks: whatever their failure policies say,
//! what goes beyond is refused, for a change that is left out may be what makes it safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portcullis_policy::admission::{MAX_OBJECT, ObjectMemory, TakenMemory};

use super::*;

/// A pod with an annotation `t` of so many bytes.
fn pod_of(bytes: usize) -> Value {
    let mut pod = mk_pod();
    pod["metadata"]["annotations"] = json!({"t": "t".repeat(bytes)});
    pod
}

/// What comes of a new pod where policies and webhooks are ignored if they fail.
fn changed(
    text: &str,
    pod: &Value,
    memory: Option<&dyn ObjectMemory>,
    ask: impl Fn(&Call) -> WebhookCallResult,
) -> Outcome {
    let text = text.replace(
        "reinvocationPolicy",
        "failurePolicy: Ignore\n  reinvocationPolicy",
    );
    let set = mk_set(&text);
    let document = Document::parse(creation_of_pod("ns", pod).to_string()).unwrap();
    let review = AdmissionReview::decode(&document).unwrap();
    let access = PolicySet::default();
    let run = RunOptions {
        memory,
        ..RunOptions::new(&access, Time::UNIX_EPOCH)
    };
    Chain::run(Phase::Mutate, &set, &review.request, run, &mut |call| ask(call))
}

fn code(outcome: &Outcome) -> i32 {
    outcome.denial.as_ref().map_or(200, |denial| denial.code)
}

/// Copies the annotation, as `to`.
fn copy(to: &str) -> Value {
    json!([{"op": "copy", "from": "/metadata/annotations/t", "path": format!("/metadata/annotations/{to}")}])
}

fn copying(names: &[&str]) -> String {
    let policy = |name: &&str| {
        let patch = format!(
            "[JSONPatch{{op: 'copy', from: '/metadata/annotations/t', path: '/metadata/annotations/{name}'}}]"
        );
        mk_mutation(name, &patch)
    };
    names.iter().map(policy).collect()
}

fn hooks(names: &[&str]) -> String {
    let hook = |name: &&str| mk_webhook("Mutating", name, "reinvocationPolicy: Never");
    names.iter().map(hook).collect()
}

#[test]
fn an_object_becomes_no_larger_than_three_mebibytes_or_twice_what_came() {
    let third = MAX_OBJECT / 3;
    for (text, is_webhook) in [
        (copying(&["a", "b", "c"]), false),
        (hooks(&["a", "b", "c"]), true),
    ] {
        let outcome = |bytes| {
            let outcome = changed(&text, &pod_of(bytes), None, |call| {
                patching(&copy(&call.webhook.configuration))
            });
            if let Some(denial) = &outcome.denial {
                let by = if is_webhook {
                    "admission webhook \""
                } else {
                    "policy '"
                };
                assert!(denial.message.starts_with(by), "{}", denial.message);
                assert!(outcome.patch.is_empty());
            }
            code(&outcome)
        };
        assert_eq!((outcome(third / 2), outcome(third)), (200, 413));
    }
    // Twice what came is enough, however much that is.
    let large = pod_of(2 * MAX_OBJECT);
    let once = changed(&hooks(&["a"]), &large, None, |_| {
        patching(&json!([{"op": "add", "path": "/metadata/annotations/a", "value": "a".repeat(MAX_OBJECT)}]))
    });
    assert_eq!(code(&once), 200);
}

#[test]
fn what_patches_copy_is_bounded_through_a_review() {
    let megabyte = pod_of(1 << 20);
    // Each takes away what it copies, so that the object never becomes large.
    let patch = |call: &Call| {
        let name = &call.webhook.configuration;
        let mut patch = copy(name);
        let path = format!("/metadata/annotations/{name}");
        patch
            .as_array_mut()
            .unwrap()
            .push(json!({"op": "remove", "path": path}));
        patching(&patch)
    };
    let outcome = |names: &[&str]| code(&changed(&hooks(names), &megabyte, None, patch));
    assert_eq!((outcome(&["a", "b"]), outcome(&["a", "b", "c", "d"])), (200, 500));
}

#[test]
fn a_patch_is_no_longer_than_twice_what_it_may_make() {
    let patch = json!([{"op": "test", "path": "/kind", "value": "k".repeat(2 * MAX_OBJECT)}]);
    let outcome = changed(&hooks(&["a"]), &mk_pod(), None, |_| patching(&patch));
    assert_eq!(code(&outcome), 413);
}

/// So many bytes, and how many of them are taken.
struct Bytes {
    all: usize,
    taken: Arc<AtomicUsize>,
}

/// Gives its bytes back.
struct Taken(usize, Arc<AtomicUsize>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl ObjectMemory for Bytes {
    fn reserve(&self, bytes: usize) -> Option<TakenMemory> {
        let taken = self.taken.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let taken_bytes = Taken(bytes, Arc::clone(&self.taken));
        (taken <= self.all).then(|| TakenMemory(Box::new(taken_bytes)))
    }
}

#[test]
fn without_memory_nothing_is_changed_and_the_request_is_refused() {
    for text in [copying(&["a", "b"]), hooks(&["a", "b"])] {
        let outcome = |all| {
            let memory = Bytes {
                all,
                taken: Arc::default(),
            };
            let outcome = changed(&text, &pod_of(100_000), Some(&memory), |call| {
                patching(&copy(&call.webhook.configuration))
            });
            assert_eq!(memory.taken.load(Ordering::Relaxed), 0, "all of it is given back");
            code(&outcome)
        };
        assert_eq!(
            (outcome(10), outcome(250_000), outcome(2_000_000)),
            (429, 429, 200)
        );
    }
}
