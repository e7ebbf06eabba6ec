//! Frames that are passed on, held back or refused.

use super::*;

fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
    let length = u32::try_from(length).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
    [&head[..], &vec![0; usize::from(length[3])]].concat()
}

/// Frames after the preface.
fn after_preface() -> Frames {
    let mut frames = Frames::new();
    assert_eq!(
        frames.advance(&[0; PREFACE_BYTES], PREFACE_BYTES),
        SafePrefix::Some(PREFACE_BYTES)
    );
    frames
}

fn advance(frames: &mut Frames, bytes: &[u8]) -> SafePrefix {
    frames.advance(bytes, bytes.len())
}

#[test]
fn a_block_of_one_frame_ends_with_it() {
    let bytes = [
        frame(DATA, 0, 7),
        frame(HEADERS, END_HEADERS, 5),
        frame(DATA, 0, 3),
    ]
    .concat();
    let block_end = 16 + 14;
    for split in 0..block_end {
        let mut frames = after_preface();
        let (first, rest) = bytes.split_at(split);
        assert_eq!(advance(&mut frames, first), SafePrefix::Some(split), "{split}");
        assert_eq!(frames.is_in_block(), split >= 16 + 9, "{split}");
        assert_eq!(
            advance(&mut frames, rest),
            SafePrefix::BlockEnd(block_end - split),
            "{split}"
        );
        assert!(!frames.is_in_block());
    }
}

#[test]
fn a_block_of_several_frames_passes_once_it_is_whole() {
    let bytes = [
        frame(HEADERS, 0, 5),
        frame(CONTINUATION, 0, 0),
        frame(CONTINUATION, END_HEADERS, 2),
        frame(DATA, 0, 1),
    ]
    .concat();
    let whole = 14 + 9 + 11;
    for available in FRAME_HEAD_BYTES..whole {
        let mut frames = after_preface();
        assert_eq!(
            advance(&mut frames, &bytes[..available]),
            SafePrefix::Some(FRAME_HEAD_BYTES),
            "{available}"
        );
        assert!(frames.is_in_block());
        let rest = &bytes[FRAME_HEAD_BYTES..];
        assert_eq!(
            advance(&mut frames, rest),
            SafePrefix::BlockEnd(whole - FRAME_HEAD_BYTES),
            "{available}"
        );
    }
}

#[test]
fn what_is_no_block_is_left_to_h2() {
    for broken in [
        frame(DATA, 0, 1),
        frame(HEADERS, END_HEADERS, 1),
        frame(CONTINUATION, 0, 1 << 20),
    ] {
        let bytes = [frame(HEADERS, 0, 5), broken].concat();
        let mut frames = after_preface();
        let mut passed = 0;
        while passed < 14 + FRAME_HEAD_BYTES {
            match advance(&mut frames, &bytes[passed..]) {
                SafePrefix::Some(more) | SafePrefix::BlockEnd(more) => passed += more,
            }
        }
    }
}

#[test]
fn a_limit_stops_anywhere() {
    let bytes = [frame(HEADERS, 0, 5), frame(CONTINUATION, END_HEADERS, 2)].concat();
    let mut frames = after_preface();
    for passed in 0..bytes.len() - 1 {
        assert_eq!(
            frames.advance(&bytes[passed..], 1),
            SafePrefix::Some(1),
            "{passed}"
        );
    }
    assert_eq!(
        frames.advance(&bytes[bytes.len() - 1..], 1),
        SafePrefix::BlockEnd(1)
    );
}
