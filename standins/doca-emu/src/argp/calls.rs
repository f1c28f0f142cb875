//! The calls of `doca_argp.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Cmd, Config, Described, Param, Parser, Program, STATE, lock, run, with};
use super::{CmdCallback, CmdSpec, ParamCallback};
use crate::c_abi::{Code, Handle, In, Object, Out, Outcome, Text, c, c_calls, require};
use crate::log::{Limit, global};

/// Returns the text that C passed. `None` for NULL.
fn text(text: &Text) -> Option<String> {
    text.get().map(|text| text.to_string_lossy().into_owned())
}

// SAFETY: the pointer is never dereferenced here. It is only passed back to the program, which is responsible
// for using it on a thread where it is valid.
unsafe impl Send for Config {}
// SAFETY: the pointers are only passed to the program. They point to the bytes of `strings`, which stay at
// their address when this value moves to another thread.
unsafe impl Send for super::DpdkArgs {}
// SAFETY: the objects behind the handles can be used by several threads, because all their mutable fields
// are locks and atomics.
unsafe impl Send for Parser {}

impl Parser {
    /// Changes the command `parent`, or the program if there is no `parent`.
    fn below(&mut self, parent: Option<&Cmd>, change: impl FnOnce(&mut CmdSpec) -> Outcome) -> Outcome {
        match parent {
            Some(cmd) => change(&mut lock(&cmd.spec)),
            None => change(&mut self.program.root),
        }
    }

    /// Registers a flag of the program, or of a command that is not registered yet. The parser owns the
    /// flag even if this fails.
    fn register_param(&mut self, parent: Option<&Cmd>, handle: Handle<Param>) -> Outcome {
        require(parent.is_none_or(|cmd| !cmd.owned.load(Relaxed)), c::DOCA_ERROR_BAD_STATE)?;
        let param = handle.get()?;
        require(!param.owned.swap(true, Relaxed), c::DOCA_ERROR_BAD_STATE)?;
        self.params.push(handle);
        let mut spec = lock(&param.spec).clone();
        self.below(parent, |cmd| {
            spec.check(&cmd.params)?;
            cmd.params.push(spec);
            Ok(())
        })
    }

    /// Registers a command, of the program or of a command that is not registered yet. The parser owns the
    /// command even if this fails.
    fn register_cmd(&mut self, parent: Option<&Cmd>, handle: Handle<Cmd>) -> Outcome {
        require(parent.is_none_or(|cmd| !cmd.owned.load(Relaxed)), c::DOCA_ERROR_BAD_STATE)?;
        let cmd = handle.get()?;
        require(!cmd.owned.swap(true, Relaxed), c::DOCA_ERROR_BAD_STATE)?;
        self.cmds.push(handle);
        // A command that is its own subcommand would make a cycle.
        require(!parent.is_some_and(|parent| std::ptr::eq(parent, cmd)), c::DOCA_ERROR_INVALID_VALUE)?;
        let spec = lock(&cmd.spec).clone();
        require(spec.name.is_some() && spec.description.is_some(), c::DOCA_ERROR_INITIALIZATION)?;
        self.below(parent, |above| {
            require(!above.cmds.iter().any(|cmd| cmd.name == spec.name), c::DOCA_ERROR_INVALID_VALUE)?;
            above.cmds.push(spec);
            Ok(())
        })
    }
}

/// Changes a flag or command. Ignores NULL.
fn set<T>(object: Handle<Described<T>>, change: impl FnOnce(&mut T))
where
    Described<T>: Object,
{
    if let Ok(object) = object.get() {
        change(&mut lock(&object.spec));
    }
}

/// Destroys a flag or command that was not registered.
fn destroy<T>(object: Handle<Described<T>>) -> Outcome
where
    Described<T>: Object,
{
    require(!object.get()?.owned.load(Relaxed), c::DOCA_ERROR_BAD_STATE)?;
    object.take_arc().map(drop)
}

c_calls! {
    /// Does nothing, because the stand-in has no gRPC.
    fn doca_argp_set_grpc_program() -> () {}
    /// Returns `NOT_SUPPORTED`.
    fn doca_argp_get_grpc_addr(address: Out<*const c_char>) {
        address.check().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
    }
    /// Prints the usage on standard output.
    fn doca_argp_usage() -> () { run::print_usage() }
    /// Makes the parser. If the name is NULL, `doca_argp_start` takes the name from the first word of the
    /// command line.
    fn doca_argp_init(program_name: Text, program_config: *mut c_void) {
        let mut state = lock(&STATE);
        require(state.parser.is_none(), c::DOCA_ERROR_BAD_STATE)?;
        state.log_level = None;
        state.sdk_log_level = None;
        let program = Program {
            name: text(&program_name),
            config: Config(program_config),
            root: CmdSpec::default(),
            version: None,
            validation: None,
            logger: None,
            dpdk: None,
        };
        state.parser = Some(Parser { program, params: Vec::new(), cmds: Vec::new(), dpdk_args: None });
        Ok(())
    }
    fn doca_argp_register_param(input_param: Handle<Param>) {
        with(|parser| parser.register_param(None, input_param))
    }
    fn doca_argp_register_cmd(input_cmd: Handle<Cmd>) {
        with(|parser| parser.register_cmd(None, input_cmd))
    }
    /// Sets the function that `-v` calls instead of printing the SDK's version.
    fn doca_argp_register_version_callback(callback: Option<ParamCallback>) {
        with(|parser| {
            parser.program.version = Some(callback.ok_or(c::DOCA_ERROR_INVALID_VALUE)?);
            Ok(())
        })
    }
    /// Sets the function that is called with the configuration after all flags.
    fn doca_argp_register_validation_callback(callback: Option<CmdCallback>) {
        with(|parser| {
            parser.program.validation = Some(callback.ok_or(c::DOCA_ERROR_INVALID_VALUE)?);
            Ok(())
        })
    }
    /// Sets the function that receives mistakes on the command line. By default they go to standard error.
    fn doca_argp_register_logger_callback(callback: c::doca_argp_logger_cb_t) {
        with(|parser| {
            require(callback.is_some(), c::DOCA_ERROR_INVALID_VALUE)?;
            require(parser.program.logger.is_none(), c::DOCA_ERROR_ALREADY_EXIST)?;
            parser.program.logger = callback;
            Ok(())
        })
    }
    /// Writes mistakes to standard error again.
    fn doca_argp_disable_logger_callback() {
        with(|parser| require(parser.program.logger.take().is_some(), c::DOCA_ERROR_BAD_STATE))
    }
    /// Parses the command line, and runs the program's callbacks in the order of the words. For `-h`,
    /// prints the usage and exits.
    fn doca_argp_start(argc: c_int, argv: In<Text>) {
        with(|_| Ok(()))?;
        let count = usize::try_from(argc).map_err(|_| c::DOCA_ERROR_INVALID_VALUE)?;
        // SAFETY: C passes an array of `argc` strings, which do not change during the call.
        let words = unsafe { argv.slice(count) }?.iter().map(text).collect::<Option<Vec<_>>>();
        run::start(&words.ok_or(c::DOCA_ERROR_INVALID_VALUE)?)
    }
    /// Destroys the parser and everything registered with it.
    fn doca_argp_destroy() {
        // Drop the parser after the lock is released.
        let parser = lock(&STATE).parser.take();
        require(parser.is_some(), c::DOCA_ERROR_BAD_STATE)
    }
    /// Sets the callback that receives the words before `--`, which are for DPDK.
    fn doca_argp_set_dpdk_program(
        callback: Option<unsafe extern "C" fn(c_int, *mut *mut c_char) -> Code>,
    ) -> () {
        let _ = with(|parser| {
            parser.program.dpdk = callback;
            Ok(())
        });
    }
    fn doca_argp_param_create(param: Out<Handle<Param>>) {
        param.check()?;
        with(|_| param.put(Handle::give_arc(Arc::new(Param::new()))))
    }
    fn doca_argp_param_set_short_name(param: Handle<Param>, name: Text) -> () {
        set(param, |spec| spec.short = text(&name))
    }
    /// Sets the long name, which follows two dashes on the command line and is the key in a JSON file.
    fn doca_argp_param_set_long_name(param: Handle<Param>, name: Text) -> () {
        set(param, |spec| spec.long = text(&name))
    }
    /// Sets the placeholder of the flag's value in the usage.
    fn doca_argp_param_set_arguments(param: Handle<Param>, arguments: Text) -> () {
        set(param, |spec| spec.arguments = text(&arguments))
    }
    fn doca_argp_param_set_description(param: Handle<Param>, description: Text) -> () {
        set(param, |spec| spec.description = text(&description))
    }
    /// Sets the function that receives the value.
    fn doca_argp_param_set_callback(param: Handle<Param>, callback: Option<ParamCallback>) -> () {
        set(param, |spec| spec.callback = callback)
    }
    fn doca_argp_param_set_type(param: Handle<Param>, kind: c::doca_argp_type) -> () {
        set(param, |spec| spec.kind = kind)
    }
    fn doca_argp_param_set_mandatory(param: Handle<Param>) -> () { set(param, |spec| spec.mandatory = true) }
    fn doca_argp_param_set_cli_only(param: Handle<Param>) -> () { set(param, |spec| spec.cli_only = true) }
    fn doca_argp_param_set_multiplicity(param: Handle<Param>) -> () {
        set(param, |spec| spec.multiple = true)
    }
    /// Marks a flag that must be given alone.
    fn doca_argp_param_set_singular(param: Handle<Param>) -> () { set(param, |spec| spec.singular = true) }
    /// Marks a flag that subcommands inherit.
    fn doca_argp_param_set_inherited(param: Handle<Param>) -> () { set(param, |spec| spec.inherited = true) }
    fn doca_argp_param_set_hidden(param: Handle<Param>) -> () { set(param, |spec| spec.hidden = true) }
    /// Destroys a flag that was not registered.
    fn doca_argp_param_destroy(param: Handle<Param>) { destroy(param) }
    fn doca_argp_cmd_create(cmd: Out<Handle<Cmd>>) {
        cmd.check()?;
        with(|_| cmd.put(Handle::give_arc(Arc::new(Cmd::new()))))
    }
    fn doca_argp_cmd_set_name(cmd: Handle<Cmd>, name: Text) -> () {
        set(cmd, |spec| spec.name = text(&name))
    }
    fn doca_argp_cmd_set_description(cmd: Handle<Cmd>, description: Text) -> () {
        set(cmd, |spec| spec.description = text(&description))
    }
    /// Sets the function that is called when the command was given.
    fn doca_argp_cmd_set_callback(cmd: Handle<Cmd>, callback: Option<CmdCallback>) -> () {
        set(cmd, |spec| spec.callback = callback)
    }
    fn doca_argp_cmd_set_hidden(cmd: Handle<Cmd>) -> () { set(cmd, |spec| spec.hidden = true) }
    /// Registers a flag of a command that is not registered yet.
    fn doca_argp_cmd_register_param(cmd: Handle<Cmd>, input_param: Handle<Param>) {
        let cmd = cmd.get()?;
        with(|parser| parser.register_param(Some(cmd), input_param))
    }
    /// Registers a subcommand of a command that is not registered yet.
    fn doca_argp_cmd_register_cmd(cmd: Handle<Cmd>, input_cmd: Handle<Cmd>) {
        let cmd = cmd.get()?;
        with(|parser| parser.register_cmd(Some(cmd), input_cmd))
    }
    /// Destroys a command that was not registered.
    fn doca_argp_cmd_destroy(cmd: Handle<Cmd>) { destroy(cmd) }
    /// Writes the level that the command line has set, or the log's current level if it has set none.
    fn doca_argp_get_log_level(level: Out<c_int>) {
        let given = lock(&STATE).log_level.unwrap_or_else(|| global(Limit::Lower));
        level.put(given.try_into().unwrap_or_default())
    }
    /// Writes the SDK's level that the command line has set, or the log's current level for the SDK if it has
    /// set none.
    fn doca_argp_get_sdk_log_level(level: Out<c_int>) {
        let given = lock(&STATE).sdk_log_level.unwrap_or_else(|| global(Limit::Sdk));
        level.put(given.try_into().unwrap_or_default())
    }
}
