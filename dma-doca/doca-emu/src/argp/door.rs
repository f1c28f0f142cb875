//! The calls of `doca_argp.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::spec::{CmdCallback, CmdSpec, ParamCallback, ParamSpec};
use super::{Cmd, Config, Param, Parser, STATE, lock, run, with};
use crate::door::{Code, Handle, In, Out, Outcome, Text, answer, c, require};

/// The text that C passes, if it does.
fn text(text: &Text) -> Option<String> {
    text.get().ok().map(|text| text.to_string_lossy().into_owned())
}

// SAFETY: the addresses are only handed back to the program, whose promise it is that they are good on the thread that
// calls.
unsafe impl Send for Config {}
// SAFETY: they are only handed to the program, and point into the strings beside them.
unsafe impl Send for super::DpdkArgs {}
// SAFETY: the objects that handles stand for are locks and atomics.
unsafe impl Send for Parser {}

/// Prints the usage on standard output.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_usage() {
    run::print_usage();
}

/// Makes the parser. Without a name the program's first argument is its name.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_init(program_name: Text, program_config: *mut c_void) -> Code {
    answer(|| {
        let mut state = lock(&STATE);
        require(state.parser.is_none(), c::DOCA_ERROR_BAD_STATE)?;
        state.log_level = None;
        state.sdk_log_level = None;
        state.parser = Some(Parser {
            program: text(&program_name),
            config: Config(program_config),
            root: Arc::new(Cmd::new()),
            params: Vec::new(),
            cmds: Vec::new(),
            version: None,
            validation: None,
            logger: None,
            dpdk: None,
            dpdk_args: None,
        });
        Ok(())
    })
}

/// Destroys the parser and all that was registered.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_destroy() -> Code {
    // Not under the lock.
    let parser = lock(&STATE).parser.take();
    answer(|| require(parser.is_some(), c::DOCA_ERROR_BAD_STATE))
}

/// Parses the command line and calls the program back, in the order of the words. Prints the usage and ends the program
/// for `-h`.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_start(argc: c_int, argv: In<Text>) -> Code {
    answer(|| {
        with(|_| Ok(()))?;
        let count = usize::try_from(argc).map_err(|_| c::DOCA_ERROR_INVALID_VALUE)?;
        let words = argv.slice(count)?.iter().map(text).collect::<Option<Vec<_>>>();
        run::start(&words.ok_or(c::DOCA_ERROR_INVALID_VALUE)?)
    })
}

/// The program uses DPDK: its words come before `--`, and go to the callback.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_set_dpdk_program(
    callback: Option<unsafe extern "C" fn(c_int, *mut *mut c_char) -> Code>,
) {
    let _ = with(|parser| {
        parser.dpdk = callback;
        Ok(())
    });
}

/// What `-v` calls instead of printing the SDK's version.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_register_version_callback(callback: Option<ParamCallback>) -> Code {
    answer(|| {
        with(|parser| {
            parser.version = Some(callback.ok_or(c::DOCA_ERROR_INVALID_VALUE)?);
            Ok(())
        })
    })
}

/// What is called with the configuration after all flags.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_register_validation_callback(callback: Option<CmdCallback>) -> Code {
    answer(|| {
        with(|parser| {
            parser.validation = Some(callback.ok_or(c::DOCA_ERROR_INVALID_VALUE)?);
            Ok(())
        })
    })
}

/// Who is told of mistakes on the command line, in place of standard error.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_register_logger_callback(callback: c::doca_argp_logger_cb_t) -> Code {
    answer(|| {
        with(|parser| {
            require(callback.is_some(), c::DOCA_ERROR_INVALID_VALUE)?;
            require(parser.logger.is_none(), c::DOCA_ERROR_ALREADY_EXIST)?;
            parser.logger = callback;
            Ok(())
        })
    })
}

/// Standard error again.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_disable_logger_callback() -> Code {
    answer(|| with(|parser| require(parser.logger.take().is_some(), c::DOCA_ERROR_BAD_STATE)))
}

/// The level that the program was started with, or the log's.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_get_log_level(level: Out<c_int>) -> Code {
    answer(|| {
        let given = lock(&STATE).log_level;
        level.put(given.unwrap_or_else(crate::log::global_lower).try_into().unwrap_or_default())
    })
}

/// The level of the SDK's log that the program was started with, or the log's.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_get_sdk_log_level(level: Out<c_int>) -> Code {
    answer(|| {
        let given = lock(&STATE).sdk_log_level;
        level.put(given.unwrap_or_else(crate::log::global_sdk).try_into().unwrap_or_default())
    })
}

/// Makes a flag to be set up and registered.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_create(param: Out<Handle<Param>>) -> Code {
    answer(|| {
        param.check()?;
        with(|_| param.put(Handle::give_arc(Arc::new(Param::new()))))
    })
}

/// Destroys a flag that was not registered.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_destroy(param: Handle<Param>) -> Code {
    answer(|| {
        require(!param.get()?.owned.load(Relaxed), c::DOCA_ERROR_BAD_STATE)?;
        param.take_arc().map(drop)
    })
}

/// The flag is the parser's from now on, whether it is accepted or not.
fn register_param(cmd: &Cmd, handle: Handle<Param>, parser: &mut Parser) -> Outcome {
    let param = handle.arc()?;
    require(!param.owned.swap(true, Relaxed), c::DOCA_ERROR_BAD_STATE)?;
    parser.params.push(handle);
    let mut params = lock(&cmd.params);
    let others: Vec<ParamSpec> = params.iter().map(|other| lock(&other.spec).clone()).collect();
    lock(&param.spec).check(&others)?;
    params.push(param);
    Ok(())
}

/// The command is the parser's from now on, whether it is accepted or not.
fn register_cmd(cmd: &Cmd, handle: Handle<Cmd>, parser: &mut Parser) -> Outcome {
    let inner = handle.arc()?;
    require(!inner.owned.swap(true, Relaxed), c::DOCA_ERROR_BAD_STATE)?;
    parser.cmds.push(handle);
    // A command below itself would have no end.
    require(!std::ptr::eq(cmd, &raw const *inner), c::DOCA_ERROR_INVALID_VALUE)?;
    let name = {
        let spec = lock(&inner.spec);
        require(spec.name.is_some() && spec.description.is_some(), c::DOCA_ERROR_INITIALIZATION)?;
        spec.name.clone()
    };
    let mut cmds = lock(&cmd.cmds);
    require(!cmds.iter().any(|other| lock(&other.spec).name == name), c::DOCA_ERROR_INVALID_VALUE)?;
    cmds.push(inner);
    Ok(())
}

/// Registers a flag of the program.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_register_param(input_param: Handle<Param>) -> Code {
    answer(|| with(|parser| register_param(&Arc::clone(&parser.root), input_param, parser)))
}

/// Registers a command of the program.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_register_cmd(input_cmd: Handle<Cmd>) -> Code {
    answer(|| with(|parser| register_cmd(&Arc::clone(&parser.root), input_cmd, parser)))
}

/// Registers a flag of a command that is not registered itself yet.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_cmd_register_param(cmd: Handle<Cmd>, input_param: Handle<Param>) -> Code {
    answer(|| {
        let cmd = cmd.arc()?;
        with(|parser| {
            require(!cmd.owned.load(Relaxed), c::DOCA_ERROR_BAD_STATE)?;
            register_param(&cmd, input_param, parser)
        })
    })
}

/// Registers a command below one that is not registered itself yet.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_cmd_register_cmd(cmd: Handle<Cmd>, input_cmd: Handle<Cmd>) -> Code {
    answer(|| {
        let cmd = cmd.arc()?;
        with(|parser| {
            require(!cmd.owned.load(Relaxed), c::DOCA_ERROR_BAD_STATE)?;
            register_cmd(&cmd, input_cmd, parser)
        })
    })
}

/// Makes a command to be set up and registered.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_cmd_create(cmd: Out<Handle<Cmd>>) -> Code {
    answer(|| {
        cmd.check()?;
        with(|_| cmd.put(Handle::give_arc(Arc::new(Cmd::new()))))
    })
}

/// Destroys a command that was not registered.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_cmd_destroy(cmd: Handle<Cmd>) -> Code {
    answer(|| {
        require(!cmd.get()?.owned.load(Relaxed), c::DOCA_ERROR_BAD_STATE)?;
        cmd.take_arc().map(drop)
    })
}

/// Sets up a flag; nothing happens for NULL.
fn set(param: Handle<Param>, change: impl FnOnce(&mut ParamSpec)) {
    if let Ok(param) = param.get() {
        change(&mut lock(&param.spec));
    }
}

/// The name behind one dash.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_set_short_name(param: Handle<Param>, name: Text) {
    set(param, |spec| spec.short = text(&name));
}

/// The name behind two dashes, and in a JSON file.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_set_long_name(param: Handle<Param>, name: Text) {
    set(param, |spec| spec.long = text(&name));
}

/// What the usage says of the flag's value.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_set_arguments(param: Handle<Param>, arguments: Text) {
    set(param, |spec| spec.arguments = text(&arguments));
}

/// What the usage says of the flag.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_set_description(param: Handle<Param>, description: Text) {
    set(param, |spec| spec.description = text(&description));
}

/// Who is called with the value.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_set_callback(param: Handle<Param>, callback: Option<ParamCallback>) {
    set(param, |spec| spec.callback = callback);
}

/// What the value is.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_set_type(param: Handle<Param>, kind: c::doca_argp_type) {
    set(param, |spec| spec.kind = kind);
}

/// The program does not start without the flag.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_set_mandatory(param: Handle<Param>) {
    set(param, |spec| spec.mandatory = true);
}

/// The flag is refused in a JSON file.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_set_cli_only(param: Handle<Param>) {
    set(param, |spec| spec.cli_only = true);
}

/// The flag can be given more than once.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_set_multiplicity(param: Handle<Param>) {
    set(param, |spec| spec.multiple = true);
}

/// The flag must be the only one.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_set_singular(param: Handle<Param>) {
    set(param, |spec| spec.singular = true);
}

/// The flag is one of all commands below, too.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_set_inherited(param: Handle<Param>) {
    set(param, |spec| spec.inherited = true);
}

/// The usage does not show the flag.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_param_set_hidden(param: Handle<Param>) {
    set(param, |spec| spec.hidden = true);
}

/// Sets up a command; nothing happens for NULL.
fn set_cmd(cmd: Handle<Cmd>, change: impl FnOnce(&mut CmdSpec)) {
    if let Ok(cmd) = cmd.get() {
        change(&mut lock(&cmd.spec));
    }
}

/// The word that chooses the command.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_cmd_set_name(cmd: Handle<Cmd>, name: Text) {
    set_cmd(cmd, |spec| spec.name = text(&name));
}

/// What the usage says of the command.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_cmd_set_description(cmd: Handle<Cmd>, description: Text) {
    set_cmd(cmd, |spec| spec.description = text(&description));
}

/// Who is called when the command was chosen.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_cmd_set_callback(cmd: Handle<Cmd>, callback: Option<CmdCallback>) {
    set_cmd(cmd, |spec| spec.callback = callback);
}

/// The usage does not show the command.
#[unsafe(no_mangle)]
extern "C" fn doca_argp_cmd_set_hidden(cmd: Handle<Cmd>) {
    set_cmd(cmd, |spec| spec.hidden = true);
}
