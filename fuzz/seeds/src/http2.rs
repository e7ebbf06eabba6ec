//! Frames of HTTP/2, one of each kind and what is made of them.

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITISED: u8 = 0x20;

const WHOLE: u8 = END_STREAM | END_HEADERS;

/// What a connection consists of, as every kind of client sends it.
pub fn seeds() -> impl Iterator<Item = Vec<u8>> {
    let connections = [
        vec![settings(&[]), get(1), get(3), get(5)],
        vec![
            settings(&[]),
            frame(SETTINGS, ACK, 0, &[]),
            frame(HEADERS, END_HEADERS, 1, &head(0x83, b"/authorize")),
            frame(DATA, 0, 1, b"{}"),
            frame(DATA, END_STREAM, 1, b"{}"),
        ],
        // Answers that get no room, and then some.
        vec![
            settings(&[0, 4, 0, 0, 0, 0]),
            frame(HEADERS, WHOLE, 1, &head(0x82, b"/large")),
            frame(WINDOW_UPDATE, 0, 1, &[0, 0, 1, 0]),
            frame(WINDOW_UPDATE, 0, 0, &[0, 15, 0, 0]),
            settings(&[0, 4, 0, 1, 0, 0, 0, 5, 0, 0, 0x40, 0]),
        ],
        // A head in pieces, and one that never ends.
        vec![
            settings(&[]),
            frame(HEADERS, END_STREAM, 1, &head(0x82, b"/")),
            frame(CONTINUATION, 0, 1, &field(b"a")),
            frame(CONTINUATION, END_HEADERS, 1, &field(b"b")),
            frame(HEADERS, 0, 3, &head(0x82, b"/")),
            frame(CONTINUATION, 0, 3, &field(b"c")),
        ],
        // Heads that are remembered, named again and forgotten.
        vec![
            settings(&[0, 1, 0, 0, 0, 100]),
            frame(
                HEADERS,
                WHOLE,
                1,
                &[head(0x82, b"/"), b"\x40\x01x\x01v".to_vec(), vec![0xbe; 200]].concat(),
            ),
            frame(HEADERS, WHOLE, 3, &[vec![0x20], head(0x82, b"/"), vec![0xbe]].concat()),
        ],
        vec![
            settings(&[]),
            frame(HEADERS, END_HEADERS, 1, &head(0x83, b"/")),
            frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]),
            frame(DATA, 0, 1, b"late"),
            frame(PING, 0, 0, &[1; 8]),
            frame(PING, ACK, 0, &[0; 8]),
            frame(GOAWAY, 0, 0, &[0; 8]),
        ],
        // Padding, priorities, trailers and frames that nobody knows.
        vec![
            settings(&[]),
            frame(
                HEADERS,
                END_HEADERS | PADDED | PRIORITISED,
                1,
                &[vec![2, 0, 0, 0, 0, 9], head(0x83, b"/"), vec![0; 2]].concat(),
            ),
            frame(DATA, PADDED, 1, b"\x02ab\0\0"),
            frame(HEADERS, WHOLE, 1, &field(b"trailer")),
            frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 7]),
            frame(0xee, 0xff, 7, b"whatever"),
            get(9),
        ],
    ];
    let connections = connections.into_iter().map(|frames| frames.concat());
    connections.flat_map(|frames| [0, 1, 2, 3, 7, 15].map(|how| [&[how], frames.as_slice()].concat()))
}

fn get(stream: u8) -> Vec<u8> {
    frame(HEADERS, WHOLE, stream, &head(0x82, b"/"))
}

fn settings(payload: &[u8]) -> Vec<u8> {
    frame(SETTINGS, 0, 0, payload)
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [.., high, low] = payload.len().to_be_bytes();
    [&[0, high, low, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// The compressed head of a request by this method, of the static table.
fn head(method: u8, path: &[u8]) -> Vec<u8> {
    let mut head = vec![method, 0x87, 4, path.len() as u8];
    head.extend(path);
    head.extend(b"\x01\x09localhost");
    head
}

/// A field of this name without a value.
fn field(name: &[u8]) -> Vec<u8> {
    [&[0, name.len() as u8], name, &[0]].concat()
}
