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
