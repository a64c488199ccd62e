//! What elements of a product have to be, computed on the host in double precision.

use super::{Layout, number::Format};

/// Rows that are looked at, spread over the matrix.
const ROWS: usize = 4;
/// Elements of each row that are looked at.
const COLUMNS: usize = 256;

/// Elements of the result that are compared.
#[derive(Debug)]
pub(super) struct Sample {
    /// By place in memory.
    pub(super) elements: Vec<Element>,
}

/// One element, and what it has to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    /// Its place in memory, in elements.
    pub(super) at: usize,
    value: f64,
    /// How far a right result may be from it.
    tolerance: f64,
}

impl Element {
    /// How far a result is from it, as a part of what is allowed; what is no number is too far.
    pub(super) fn error(&self, found: f32) -> f64 {
        let error = (f64::from(found) - self.value).abs() / self.tolerance;
        if error.is_nan() { f64::INFINITY } else { error }
    }
}

/// What is multiplied, as the host knows it: the tiles that both matrices repeat, in the values that
/// the GPU reads.
#[derive(Debug)]
pub(super) struct Factors<'a> {
    pub(super) size: usize,
    pub(super) layout: Layout,
    pub(super) a: &'a [f32],
    pub(super) b: &'a [f32],
    /// How far inputs may be rounded once more before they are multiplied, relatively: 0 but for tf32.
    pub(super) input_rounding: f64,
    /// The unit of the sum that products are added to, relatively.
    pub(super) sum_rounding: f64,
    pub(super) output: Format,
}

impl Factors<'_> {
    /// Computes the elements that are compared.
    ///
    /// A sum of n products in a number of unit u is off by about u times the root of n times the
    /// root of the sum of their squares, since errors go either way; eight times that is allowed,
    /// which one sum in 10^15 would miss by chance. The rounding of inputs and of the result come on
    /// top.
    pub(super) fn sample(&self) -> Sample {
        let n = self.size;
        let rows = (0..ROWS.min(n)).map(|row| row * n / ROWS.min(n) + row % n.div_ceil(ROWS));
        let mut elements: Vec<Element> = rows
            .flat_map(|row| {
                let columns = COLUMNS.min(n);
                (0..columns).map(move |column| (row.min(n - 1), (column * n / columns + row) % n))
            })
            .map(|(row, column)| self.element(row, column))
            .collect();
        elements.sort_by_key(|element| element.at);
        elements.dedup_by_key(|element| element.at);
        Sample { elements }
    }

    /// Matrices are stored by columns, as BLAS has them.
    fn element(&self, row: usize, column: usize) -> Element {
        let n = self.size;
        let (start, step) = match self.layout {
            Layout::Plain => (row, n),
            Layout::FirstTransposed => (row * n, 1),
        };
        let mut a = start % self.a.len();
        let mut b = column * n % self.b.len();
        let step = step % self.a.len();
        let (mut value, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let product = f64::from(self.a[a]) * f64::from(self.b[b]);
            value += product;
            squares += product * product;
            a += step;
            if a >= self.a.len() {
                a -= self.a.len();
            }
            b += 1;
            if b == self.b.len() {
                b = 0;
            }
        }
        let n = f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        let sum = self.sum_rounding * (n * squares).sqrt();
        let inputs = self.input_rounding * (2.0 * squares).sqrt();
        let tolerance = 8.0 * (sum + inputs) + 1.01 * self.output.rounding() * value.abs() + 1e-9;
        Element { at: row + column * self.size, value, tolerance }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tile::tile, *};

    fn product(factors: &Factors<'_>, n: usize) -> Vec<f32> {
        let a = |row: usize, k: usize| match factors.layout {
            Layout::Plain => factors.a[(row + k * n) % factors.a.len()],
            Layout::FirstTransposed => factors.a[(k + row * n) % factors.a.len()],
        };
        let mut c = vec![0.0; n * n];
        for column in 0..n {
            for row in 0..n {
                c[row + column * n] =
                    (0..n).map(|k| a(row, k) * factors.b[(k + column * n) % factors.b.len()]).sum();
            }
        }
        c
    }

    #[test]
    fn a_plain_product_in_single_precision_is_right_and_a_changed_one_is_not() {
        let n = 64;
        for layout in [Layout::Plain, Layout::FirstTransposed] {
            let (a, b) = (tile(1, n * n), tile(2, n * n));
            let factors = Factors {
                size: n,
                layout,
                a: &a,
                b: &b,
                input_rounding: 0.0,
                sum_rounding: 2.0_f64.powi(-24),
                output: Format::F32,
            };
            let mut c = product(&factors, n);
            let sample = factors.sample();
            assert_eq!(sample.elements.len(), 4 * 64);
            for element in &sample.elements {
                assert!(element.error(c[element.at]) < 1.0, "{element:?} {}", c[element.at]);
                c[element.at] += 1e-3;
                assert!(element.error(c[element.at]) > 1.0, "{element:?} {}", c[element.at]);
            }
            assert_eq!(sample.elements[0].error(f32::NAN), f64::INFINITY);
        }
    }
}
