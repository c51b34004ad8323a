//! JSON in a canonical form, in which equal values have equal bytes.
//!
//! | value | canonical form |
//! |---|---|
//! | `null`, `true`, `false` | `n`, `t`, `f` |
//! | number | `#`, the length in bytes (LEB128), the canonical notation |
//! | string | `"`, the length in bytes (LEB128), the text |
//! | array | `[`, the length in bytes (32 bits, little-endian), the items |
//! | object | `{`, the length in bytes (32 bits, little-endian), each key and its value, sorted by the keys' forms |
//!
//! Different values have different forms, and a search skips a value by its length.
//!
//! Strings are UTF-8. JSON also allows an unpaired surrogate as an escape. It is encoded in the three bytes that UTF-8
//! would use for it, which no valid UTF-8 contains: <https://wtf-8.codeberg.page/>
//!
//! - `number`: exact decimal numbers
//! - `parser`: parses text into the canonical form

mod number;
mod parser;

/// Size of the length of an array or an object in the canonical form, bytes.
pub(crate) const LENGTH_SIZE: usize = 4;

/// The canonical form of this text. The order of keys, white space, escapes and the notation of numbers have no effect
/// on it. If an object has a key more than once, all values are kept, the last one first: which of them counts depends
/// on the parser.
///
/// Returns `None` if the text is not JSON, is nested more than 128 deep, or has a number with an exponent beyond 128
/// bits.
pub(crate) fn canonical(text: &str) -> Option<Vec<u8>> {
    parser::Parser::canonical(text)
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn equal_values_have_equal_forms() {
        let texts = [
            r#"{"a":1,"b":[true,null,"x/y"],"c":{"d":-2.5}}"#,
            "{ \"c\" : {\"d\":-25e-1}, \"b\":[true , null,\"\\u0078\\/y\"], \"a\" : 1.0 }",
            r#"{"c":{"d":-2.50},"b":[true,null,"x\u002fy"],"a":1e0}"#,
        ];
        for text in texts {
            assert_eq!(canonical(text).unwrap(), canonical(texts[0]).unwrap(), "{text}");
        }
    }

    #[test]
    fn different_values_have_different_forms() {
        let values = [
            "null",
            "true",
            "false",
            "0",
            "1",
            "-1",
            "1.5",
            "9007199254740993",
            "9007199254740992.0",
            "1e300",
            "1e301",
            "\"\"",
            "\"1\"",
            "\"null\"",
            "[]",
            "[[]]",
            "[null]",
            "[1,2]",
            "[12]",
            "[\"1\",\"2\"]",
            "[\"12\"]",
            "{}",
            "{\"a\":1}",
            "{\"a\":1,\"a\":2}",
            "{\"a\":2,\"a\":1}",
            "{\"a\":1,\"a\":1}",
            "{\"a\":\"1\"}",
            "[\"a\",1]",
            "{\"a\":{}}",
            "{\"\":{\"a\":1}}",
            "[[1],2]",
            "[[1,2]]",
            "[{},1]",
            "{\"a\":[],\"b\":1}",
            "{\"a\":[\"b\",1]}",
            "\"]\"",
            "\"\\u0001n\"",
        ];
        for (index, value) in values.iter().enumerate() {
            for other in &values[..index] {
                assert_ne!(canonical(value).unwrap(), canonical(other).unwrap(), "{value} and {other}");
            }
        }
    }

    #[test]
    fn nested_objects_are_sorted_independently() {
        let texts = [
            r#"{"b":{"z":[{"d":1,"c":2}],"y":3},"a":{"x":{"f":4,"e":5}},"bb":6}"#,
            r#"{"a":{"x":{"e":5,"f":4}},"b":{"y":3,"z":[{"c":2,"d":1}]},"bb":6}"#,
        ];
        for text in texts {
            assert_eq!(canonical(text).unwrap(), canonical(texts[0]).unwrap(), "{text}");
        }
    }

    #[test]
    fn each_short_escape_is_its_character() {
        for (short, code) in
            [("\"", 0x22), ("\\", 0x5c), ("/", 0x2f), ("b", 8), ("f", 12), ("n", 10), ("r", 13), ("t", 9)]
        {
            let unicode = format!("\"\\u{code:04x}\"");
            assert_eq!(canonical(&format!("\"\\{short}\"")).unwrap(), canonical(&unicode).unwrap(), "{short}");
        }
    }

    #[test]
    fn an_unpaired_surrogate_has_three_bytes() {
        for (text, bytes) in [("\"\\ud800\"", [0xed, 0xa0, 0x80]), ("\"\\udfff\"", [0xed, 0xbf, 0xbf])] {
            assert_eq!(canonical(text).unwrap(), [&[b'"', 3], &bytes[..]].concat(), "{text}");
        }
    }

    #[test]
    fn the_length_of_a_string_has_seven_bits_in_each_byte() {
        for (length, bytes) in [(0, &[0][..]), (127, &[0x7f]), (128, &[0x80, 0x01]), (16_384, &[0x80, 0x80, 0x01])] {
            let form = canonical(&format!("\"{}\"", "x".repeat(length))).unwrap();
            assert_eq!(form, [b"\"", bytes, "x".repeat(length).as_bytes()].concat(), "{length}");
        }
    }

    #[test]
    fn only_nested_containers_count_towards_the_depth() {
        let siblings = |item: &str| format!("[{}]", vec![item; 1000].join(","));
        for text in [siblings("[]"), siblings("{}"), siblings("[[1]]")] {
            assert!(canonical(&text).is_some(), "{text}");
        }
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(canonical(&nested(128)).is_some());
        assert!(canonical(&nested(129)).is_none());
    }

    #[test]
    fn text_that_is_not_exactly_one_value_is_not_json() {
        for text in ["", " ", "{", "[1,]", "1 2", "{\"a\":1}x", "nul", "01", "1.", "\"\\u+123\""] {
            assert!(canonical(text).is_none(), "{text}");
        }
    }
}
