//! Checks that the types of the C boundary keep their promise to safe Rust.

use std::fs;
use std::path::Path;

use syn::{Item, Type};

/// Methods that rely on a length, a type or an address are unsafe.
#[test]
fn methods_that_rely_on_an_address_are_unsafe() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/c_abi");
    let files = fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let items: Vec<Item> = files.flat_map(|text| syn::parse_file(&text).unwrap().items).collect();
    let mut unsafe_methods = Vec::new();
    for item in &items {
        let Item::Impl(block) = item else { continue };
        let Type::Path(of) = &*block.self_ty else { continue };
        let of = &of.path.segments.last().unwrap().ident;
        for item in &block.items {
            if let syn::ImplItem::Fn(method) = item
                && matches!(method.sig.safety, syn::Safety::Unsafe(_))
            {
                unsafe_methods.push(format!("{of}::{}", method.sig.ident));
            }
        }
    }
    unsafe_methods.sort();
    let all = [
        "Addr::copy_to",
        "Addr::to",
        "Addr::zero",
        "Handle::of",
        "In::cast",
        "In::get_as",
        "In::slice",
        "Out::cut_text",
        "Out::fill",
        "Out::from_array",
        "Out::put_as",
        "Out::text",
        "Ptr::array",
        "Ptr::give",
        "Ptr::new",
        "Ptr::of",
        "Ptr::put_text",
        "Ptr::read",
        "Ptr::slice",
        "Ptr::take",
        "Ptr::write",
        "Text::new",
    ];
    assert_eq!(unsafe_methods, all);
}
