//! The parameters of a request's address: known ones, once each, decoded.

use std::collections::BTreeMap;

/// The decoded parameters by name.
pub(crate) type Query = BTreeMap<String, String>;

/// Reads `a=1&b=2`. Unknown, repeated and broken parameters are refused in words: a caller who
/// misspells `target` must not get an answer about everything.
pub(crate) fn parse(text: Option<&str>, known: &[&str]) -> Result<Query, String> {
    let mut query = Query::new();
    for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let broken = || format!("parameter {name:?} is not well encoded");
        let name = decode(&name.replace('+', " ")).ok_or_else(broken)?;
        let value = decode(&value.replace('+', " ")).ok_or_else(broken)?;
        if !known.contains(&name.as_str()) {
            let known = match known {
                [] => "none".to_string(),
                known => known.join(", "),
            };
            return Err(format!("there is no parameter {name:?}; known are {known}"));
        }
        if query.insert(name.clone(), value).is_some() {
            return Err(format!("parameter {name:?} is given twice"));
        }
    }
    // `target=` is what a form sends for a field that was left empty.
    query.retain(|_, value| !value.is_empty());
    Ok(query)
}

/// Resolves `%41`; none if an escape is broken or the bytes are no UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let value = digit(rest.next()?)? * 16 + digit(rest.next()?)?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Escapes what can't stand in one segment of a path, or in a value of a query.
pub(crate) fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                out.push(char::from(byte));
            }
            other => write!(out, "%{other:02X}").expect("a String takes everything"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_parameters_are_decoded_and_the_others_refused() {
        let known = ["test", "target"];
        let table = [
            (None, Ok(vec![])),
            (Some(""), Ok(vec![])),
            (Some("test=pcie&target=0000%3Ac1:00.0"), Ok(vec![("target", "0000:c1:00.0"), ("test", "pcie")])),
            (Some("test=a+b"), Ok(vec![("test", "a b")])),
            (Some("test=pcie&target="), Ok(vec![("test", "pcie")])),
            (Some("tset=pcie"), Err("there is no parameter \"tset\"; known are test, target")),
            (Some("test=a&test=b"), Err("parameter \"test\" is given twice")),
            (Some("test=%4"), Err("parameter \"test\" is not well encoded")),
            (Some("test=%zz"), Err("parameter \"test\" is not well encoded")),
            (Some("test=%ff"), Err("parameter \"test\" is not well encoded")),
        ];
        for (text, expected) in table {
            let found = parse(text, &known);
            let found = found
                .as_ref()
                .map(|query| query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect())
                .map_err(String::as_str);
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn an_encoded_segment_decodes_to_itself() {
        for text in ["0000:c1:00.0", "disk check/é <b>", "100%", ""] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
        assert!(!encode("a/b?c#d").contains(['/', '?', '#']));
    }
}
