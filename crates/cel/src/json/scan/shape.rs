//! A quick comparison of keys that distinguishes most of them without reading them.

/// A number below 64 for the string from `start` to `end`, quotes included:
/// equal strings have equal ones, others seldom.
#[inline(always)]
pub(crate) fn shape(bytes: &[u8], start: usize, end: usize) -> usize {
    let byte = |at: usize| bytes.get(at).copied().map_or(0, usize::from);
    let length = end - start;
    let (first, middle, last) = (
        byte(start + 1),
        byte(start + length / 2),
        byte(end.wrapping_sub(2)),
    );
    (length ^ (first << 1) ^ (middle << 3) ^ (last << 2)) & 63
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_have_equal_shapes_wherever_they_stand() {
        for length in 2..40 {
            let string = format!("\"{}\"", "k".repeat(length - 2));
            let texts = [
                "{string}",
                "{string}:1",
                "{string}:1,\"other\":[1,2,3,4]",
                " \"x\":2, {string}",
            ];
            let shapes = texts.map(|text| {
                let text = text.replace("{string}", &string);
                let start = text.find(&string).unwrap();
                shape(text.as_bytes(), start, start + length)
            });
            assert_eq!(shapes, [shapes[0]; 4], "{string}");
        }
    }
}
