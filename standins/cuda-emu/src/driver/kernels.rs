//! Modules, their kernels, and launches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cuda_ptx::{Kernel, Launch, Module};

use super::Driver;
use super::kernel_run::KernelRun;
use super::objects::Step;
use crate::codes::{Code, Outcome, require};

/// Maximum length of the shared memory of a block, in bytes.
pub(crate) const SHARED_MAX: u32 = 48 << 10;
/// Maximum number of blocks in the dimensions y and z.
const BLOCKS_MAX: u32 = 65_535;
/// Maximum number of threads of a block in each dimension, and of all together.
const THREADS_MAX: [u32; 4] = [1024, 1024, 64, 1024];

/// Modules and functions, by their handles.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    modules: BTreeMap<u64, (u64, Arc<Module>)>,
    functions: BTreeMap<u64, Function>,
}

/// A kernel of a loaded module.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) module: u64,
    pub(crate) kernel: Arc<Kernel>,
    /// Limit of the shared memory that a launch adds, in bytes.
    pub(crate) dynamic_shared_max: u32,
}

impl Modules {
    /// Returns the module that was unloaded.
    fn unload(&mut self, module: u64) -> Outcome<Arc<Module>> {
        let (_, unloaded) = self.modules.remove(&module).ok_or(Code::INVALID_HANDLE)?;
        self.functions.retain(|_, function| function.module != module);
        Ok(unloaded)
    }

    pub(super) fn drop_context(&mut self, context: u64) {
        self.modules.retain(|_, (owner, _)| *owner != context);
        let modules = &self.modules;
        self.functions.retain(|_, function| modules.contains_key(&function.module));
    }

    pub(crate) fn module(&self, module: u64) -> Outcome<&Arc<Module>> {
        self.modules.get(&module).map(|(_, module)| module).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn function(&self, function: u64) -> Outcome<&Function> {
        self.functions.get(&function).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn function_mut(&mut self, function: u64) -> Outcome<&mut Function> {
        self.functions.get_mut(&function).ok_or(Code::INVALID_HANDLE)
    }
}

/// Blocks, threads of a block, and bytes of shared memory that a launch adds to those of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) shared: u32,
}

impl Driver {
    /// Allocates the memory of a module's variables. Returns `None` if it has none.
    pub(crate) fn place_variables(&mut self, initial: &[u8]) -> Outcome<Option<u64>> {
        let (context, device) = self.current()?;
        if initial.is_empty() {
            return Ok(None);
        }
        self.memory.allocate_variables(device, context, initial).map(Some)
    }

    pub(crate) fn load_module(&mut self, module: Module) -> Outcome<u64> {
        let (context, _) = self.current()?;
        let handle = self.handle();
        self.modules.modules.insert(handle, (context, Arc::new(module)));
        Ok(handle)
    }

    pub(crate) fn unload_module(&mut self, module: u64) -> Outcome {
        self.current()?;
        if let Some(memory) = self.modules.unload(module)?.memory {
            self.memory.free_variables(memory);
        }
        Ok(())
    }

    /// Returns the handle of a kernel. The same kernel always has the same handle.
    pub(crate) fn function(&mut self, module: u64, name: &str) -> Outcome<u64> {
        self.current()?;
        let kernel = self.modules.module(module)?.kernel(name).ok_or(Code::NOT_FOUND)?;
        let kernel = Arc::clone(kernel);
        let known =
            self.modules.functions.iter().find(|(_, function)| Arc::ptr_eq(&function.kernel, &kernel));
        if let Some((handle, _)) = known {
            return Ok(*handle);
        }
        let handle = self.handle();
        let dynamic_shared_max = SHARED_MAX.saturating_sub(kernel.shared);
        self.modules.functions.insert(handle, Function { module, kernel, dynamic_shared_max });
        Ok(handle)
    }

    /// Queues a kernel.
    pub(crate) fn launch(
        &mut self,
        function: u64,
        shape: Shape,
        parameters: Box<[u8]>,
        stream: u64,
    ) -> Outcome {
        let stream = self.stream_of(stream)?;
        let Function { kernel, dynamic_shared_max, .. } = self.modules.function(function)?;
        let Shape { blocks, threads, shared } = shape;
        require(
            !blocks.contains(&0) && !threads.contains(&0) && blocks[0] <= i32::MAX as u32,
            Code::INVALID_VALUE,
        )?;
        let all = threads.iter().fold(1_u32, |all, threads| all.saturating_mul(*threads));
        let [.., most] = THREADS_MAX;
        if blocks[1..].iter().any(|blocks| *blocks > BLOCKS_MAX)
            || threads.iter().zip(THREADS_MAX).any(|(threads, most)| *threads > most)
            || all > most
            || shared > *dynamic_shared_max
            || kernel.threads_required.is_some_and(|required| required != all)
        {
            return Err(Code::INVALID_VALUE);
        }
        require(all <= kernel.threads_max, Code::LAUNCH_OUT_OF_RESOURCES)?;
        let launch = Launch::new(kernel, blocks, threads, parameters, shared);
        self.count(stream, 1, 0)?;
        self.queue(stream, Step::Launch(Box::new(KernelRun::new(launch))))
    }

    /// Returns the devices whose memory the kernels of a stream's context reach, apart from its own.
    pub(super) fn peer_devices(&self, stream: u64) -> Vec<usize> {
        let context = self.streams.get(&stream).and_then(|stream| self.contexts.get(&stream.context));
        let peers = context.into_iter().flat_map(|context| &context.peers);
        peers.filter_map(|peer| self.contexts.get(peer)).map(|peer| peer.device).collect()
    }

    /// Returns the time until the next kernel ends that has executed all its instructions.
    pub(super) fn next_kernel_end(&self) -> Option<Duration> {
        let now = self.now();
        let ends = self.streams.values().filter_map(|stream| match stream.steps.front() {
            Some(Step::Launch(run)) => run.ends(),
            _ => None,
        });
        let next = ends.min()?;
        Some(Duration::from_nanos(next.saturating_sub(now).as_ps() / 1_000 + 1))
    }
}
