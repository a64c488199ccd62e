//! Comparisons, counted by field.

use std::collections::BTreeMap;

use serde_json::Value;

/// Mismatches that are kept in full for each field; the rest is counted.
const SHOWN: usize = 5;

#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<String, Count>);

#[derive(Debug, Default)]
struct Count {
    compared: u32,
    wrong: u32,
    values: BTreeMap<String, u32>,
    examples: Vec<String>,
}

impl Tally {
    /// Compares what the product says with what lspci says. Null is "not said".
    pub(crate) fn compare(&mut self, field: &str, place: &str, product: &Value, lspci: &Value) {
        let count = self.0.entry(field.to_owned()).or_default();
        count.compared += 1;
        *count.values.entry(lspci.to_string()).or_default() += 1;
        if !same(product, lspci) {
            count.wrong += 1;
            if count.examples.len() < SHOWN {
                count.examples.push(format!("{place}: {product}, lspci says {lspci}"));
            }
        }
    }

    /// Compares all members of two objects. `aside` names those that lspci does not tell.
    pub(crate) fn compare_objects(
        &mut self,
        prefix: &str,
        place: &str,
        product: &Value,
        lspci: &Value,
        aside: &[&str],
    ) {
        let members = |value: &Value| {
            value.as_object().cloned().unwrap_or_else(|| panic!("{prefix}: {value} is no object"))
        };
        let (product, lspci) = (members(product), members(lspci));
        for key in product.keys() {
            let known = lspci.contains_key(key) || aside.contains(&key.as_str());
            assert!(known, "{prefix}.{key} is new, and nothing here compares it");
        }
        for (key, value) in &lspci {
            self.compare(&format!("{prefix}.{key}"), place, product.get(key).unwrap_or(&Value::Null), value);
        }
    }

    /// Prints a line for each field and fails unless each was compared often enough, and rightly.
    pub(crate) fn judge(&self, least: u32) {
        println!("{:52} {:>8} {:>8} {:>6}", "field", "compared", "values", "wrong");
        for (field, count) in &self.0 {
            println!("{field:52} {:8} {:8} {:6}", count.compared, count.values.len(), count.wrong);
        }
        let compared: u32 = self.0.values().map(|count| count.compared).sum();
        println!("{compared} comparisons of {} fields", self.0.len());
        let mut faults = Vec::new();
        for (field, count) in &self.0 {
            if count.compared < least {
                faults.push(format!("{field} was compared {} times, not {least}", count.compared));
            }
            faults.extend(count.examples.iter().map(|example| format!("{field} of {example}")));
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

/// Whether two values are equal, 8 and 8.0 being so. Rates are products of floats in either order.
fn same(product: &Value, lspci: &Value) -> bool {
    match (product.as_f64(), lspci.as_f64()) {
        (Some(product), Some(lspci)) => (product - lspci).abs() <= 1e-9 * lspci.abs(),
        (Some(_), None) | (None, Some(_)) => false,
        (None, None) => product == lspci,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    #[should_panic(expected = "speed of 0000:23:00.0: 16.0, lspci says 32")]
    fn a_difference_fails() {
        let mut tally = Tally::default();
        tally.compare("speed", "0000:23:00.0", &json!(16.0), &json!(32));
        tally.judge(1);
    }

    #[test]
    #[should_panic(expected = "speed was compared 1 times, not 2")]
    fn too_few_comparisons_fail() {
        let mut tally = Tally::default();
        tally.compare("speed", "0000:23:00.0", &json!(32.0), &json!(32));
        tally.judge(2);
    }

    #[test]
    fn absent_is_not_zero() {
        for (product, lspci, want) in [
            (json!(null), json!(null), true),
            (json!(0), json!(null), false),
            (json!(null), json!(0), false),
            (json!(8), json!(8.0), true),
            (json!("on"), json!("off"), false),
        ] {
            assert_eq!(same(&product, &lspci), want, "{product} {lspci}");
        }
    }

    #[test]
    #[should_panic(expected = "row.novelty is new")]
    fn an_unknown_member_fails() {
        Tally::default().compare_objects("row", "x", &json!({"novelty": 1}), &json!({}), &[]);
    }
}
