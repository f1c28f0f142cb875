//! Lists this machine's engines and opens engines by name.
//!
//! `cargo run --example 02_choose_engine -- [NAME...]`, such as `cpu:threads=1` or
//! `sim:profile=bluefield3,seed=7`.

use dma::prelude::*;

fn main() -> dma::Result<()> {
    println!("This machine has:");
    for found in dma::discover() {
        match found.info {
            Ok(info) if info.model.is_some() => println!("  {:5} {}, a model", found.name, info.device),
            Ok(info) => println!("  {:5} {}", found.name, info.device),
            // The error says why the engine cannot be opened, and names the remedy.
            Err(e) => println!("  {:5} not usable: {e}", found.name),
        }
    }

    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = [
            "auto",
            "cpu:threads=0",
            "sim:profile=bluefield3,seed=7",
            "sim:profil=dsa",
            "cpo",
            "doca:03:00.0",
        ]
        .map(String::from)
        .to_vec();
    }
    println!("\nBy name:");
    let mut opened = 0;
    for name in &names {
        match dma::open(name) {
            Ok(engine) => {
                let info = engine.info();
                println!(
                    "  {name}: {}, copies up to {} bytes at once, {:?}",
                    info.device, info.limits.max_transfer, info.capabilities
                );
                // Code that takes `&dyn DmaEngine` runs on any engine.
                match greet(&*engine) {
                    Ok(()) => opened += 1,
                    Err(e) => println!("    {e}"),
                }
            }
            // The error suggests a valid name.
            Err(e) => println!("  {name}: {e}"),
        }
    }
    println!("\n{opened} of {} engines opened and copied a greeting", names.len());
    Ok(())
}

fn greet(engine: &dyn DmaEngine) -> dma::Result<()> {
    let queue = engine.open_queue(&QueueOptions::new())?;
    let mut src = engine.allocate(5)?;
    src.copy_from_slice(b"hello");
    let (_, dst) = queue.copy(src, engine.allocate(5)?)?.wait()?;
    assert_eq!(&dst[..], b"hello");
    Ok(())
}
