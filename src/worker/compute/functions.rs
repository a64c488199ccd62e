//! Tables of functions that are found in a vendor's library when it is loaded.
//!
//! Each function is written twice: as C declares it in the vendor's header, and as Rust calls it.
//! The test of the tables compares the two, and `tests/headers/check` compiles the first against
//! the vendor's headers: so a signature is wrong in neither without a failing test.

/// Makes a struct of function pointers, and how it is loaded. `%` in a C declaration stands for
/// the vendor's prefix.
macro_rules! functions {
    ($(#[$doc:meta])* $visibility:vis struct $table:ident {
        $($(#[$field_doc:meta])* $field:ident = $declaration:literal as fn($($argument:ty),*) -> $result:ty;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        $visibility struct $table {
            $($(#[$field_doc])* $visibility $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $table {
            /// Finds every function of the table, each by its own name after `spell`.
            $visibility fn load(
                library: &$crate::worker::library::Library,
                spell: impl Fn(&str) -> String,
            ) -> Result<$table, $crate::worker::library::LibraryError> {
                Ok($table {
                    $($field: {
                        let symbol = $crate::worker::compute::functions::symbol(&spell($declaration)).to_string();
                        #[expect(unsafe_code, reason = "loads a symbol of a foreign library")]
                        // SAFETY: the type is the declaration's, which the tests compare with the
                        // vendor's header. Libraries stay open until the process ends.
                        unsafe { library.symbol::<unsafe extern "C" fn($($argument),*) -> $result>(&symbol)? }
                    },)*
                })
            }

            /// Every function as C declares it, with its arguments and result as Rust calls it.
            #[cfg(test)]
            $visibility const SIGNATURES: &[(&'static str, &'static [&'static str], &'static str)] =
                &[$(($declaration, &[$(stringify!($argument)),*], stringify!($result))),*];
        }
    };
}

pub(super) use functions;

/// The name in a C declaration: what comes before the first parenthesis.
pub(super) fn symbol(declaration: &str) -> &str {
    let before = declaration.split('(').next().unwrap_or_default();
    before.rsplit([' ', '*']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::symbol;

    #[test]
    fn the_name_is_what_comes_before_the_arguments() {
        let table = [
            ("cudaError_t cudaMalloc(void **, size_t)", "cudaMalloc"),
            ("const char *hipGetErrorName(hipError_t)", "hipGetErrorName"),
        ];
        for (declaration, name) in table {
            assert_eq!(symbol(declaration), name);
        }
    }
}
