//! The intercepted functions. Each calls the next function of its name and then counts what that did.

/// Defines intercepting functions.
macro_rules! hooks {
    ($($(#[$attribute:meta])* fn $name:ident($($arg:ident: $kind:ty),*) -> $ret:ty $body:block)*) => {
        $(
            #[doc = concat!("Stands before `", stringify!($name), "`.")]
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $kind),*) -> $ret $body
        )*
    };
}

mod access;
pub mod memory;
mod names;
mod opening;
mod process;
mod streams;
