//! The calls of `doca_graph.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::c_void;
use std::rc::Rc;

use super::instance::{Data, Instance};
use super::{Callback, Conf, Graph, Kind, Node, UserCallback};
use crate::ctx::Ctx;
use crate::door::{Code, Handle, INVALID, Out, Outcome, answer, c, require};
use crate::pe::Pe;
use crate::task::Head;

/// Makes a graph without nodes, which a progress engine runs.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_create(pe: Handle<Pe>, graph: Out<Handle<Graph>>) -> Code {
    answer(|| {
        graph.check()?;
        graph.put(Handle::give_rc(Graph::new(&pe.rc()?)?))
    })
}

/// Destroys a graph that is stopped.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_destroy(graph: Handle<Graph>) -> Code {
    answer(|| {
        let it = graph.get()?;
        it.require_stopped()?;
        // Others may have it as a node.
        require(Rc::strong_count(&graph.rc()?) <= 2, c::DOCA_ERROR_IN_USE)?;
        it.ctx.disconnect()?;
        graph.take_rc().map(drop)
    })
}

/// Who is told of instances that ended, and how many instances there can be.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_set_conf(
    graph: Handle<Graph>,
    completed: Option<Callback>,
    failed: Option<Callback>,
    instances: u32,
) -> Code {
    answer(|| {
        let graph = graph.get()?;
        let (completed, failed) = (completed.ok_or(INVALID)?, failed.ok_or(INVALID)?);
        require(instances > 0, INVALID)?;
        graph.require_stopped()?;
        graph.conf.set(Some(Conf { completed, failed, instances }));
        Ok(())
    })
}

/// Sets what callbacks are given with an instance.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_set_user_data(graph: Handle<Graph>, user_data: c::doca_data) -> Code {
    answer(|| {
        let graph = graph.get()?;
        graph.require_stopped()?;
        graph.user_data.set(user_data);
        Ok(())
    })
}

/// What callbacks are given with an instance.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_get_user_data(graph: Handle<Graph>, user_data: Out<c::doca_data>) -> Code {
    answer(|| user_data.put(graph.get()?.user_data.get()))
}

/// Adds a task of a context.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_node_create_from_ctx(
    graph: Handle<Graph>,
    ctx: Handle<Ctx>,
    node: Out<Handle<Node>>,
) -> Code {
    answer(|| {
        node.check()?;
        let (graph, ctx) = (graph.get()?, ctx.get()?);
        graph.require_stopped()?;
        node.put(graph.add(Kind::Context(ctx.this().clone())))
    })
}

/// Adds a function of the program's.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_node_create_from_user(
    graph: Handle<Graph>,
    callback: Option<UserCallback>,
    node: Out<Handle<Node>>,
) -> Code {
    answer(|| {
        node.check()?;
        let (graph, callback) = (graph.get()?, callback.ok_or(INVALID)?);
        graph.require_stopped()?;
        node.put(graph.add(Kind::User(callback)))
    })
}

/// Adds another graph, which is started.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_node_create_from_graph(
    graph: Handle<Graph>,
    sub_graph: Handle<Graph>,
    node: Out<Handle<Node>>,
) -> Code {
    answer(|| {
        node.check()?;
        let (graph, sub_graph) = (graph.get()?, sub_graph.rc()?);
        // A started one has no node that is not started: no other circle is possible.
        require(!std::ptr::eq(graph, &*sub_graph), c::DOCA_ERROR_NOT_PERMITTED)?;
        require(!graph.started.get() && sub_graph.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        node.put(graph.add(Kind::Graph(sub_graph)))
    })
}

/// Has a node wait for another. `NOT_PERMITTED` if they would wait for each other.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_add_dependency(graph: Handle<Graph>, from: Handle<Node>, to: Handle<Node>) -> Code {
    answer(|| {
        let graph = graph.get()?;
        let own = |node: &Node| graph.own(node).map_err(|_| INVALID);
        let (from, to) = (own(from.get()?)?, own(to.get()?)?);
        graph.require_stopped()?;
        graph.depend(from, to)
    })
}

/// Starts a graph of contexts that run.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_start(graph: Handle<Graph>) -> Code {
    answer(|| graph.get()?.start())
}

/// Stops a graph that has no instances.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_stop(graph: Handle<Graph>) -> Code {
    answer(|| graph.get()?.stop())
}

/// Makes an instance of a started graph.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_instance_create(
    graph: Handle<Graph>,
    graph_instance: Out<Handle<Instance>>,
) -> Code {
    answer(|| {
        graph_instance.check()?;
        graph_instance.put(Handle::give_rc(Instance::new(graph.rc()?)?))
    })
}

/// Destroys an instance that is not submitted and not another's node; otherwise `IN_USE`.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_instance_destroy(graph_instance: Handle<Instance>) -> Code {
    answer(|| {
        graph_instance.get()?.require_unused()?;
        graph_instance.take_rc()?.clear();
        Ok(())
    })
}

/// Sets what callbacks are given with the instance.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_instance_set_user_data(
    graph_instance: Handle<Instance>,
    user_data: c::doca_data,
) -> Code {
    answer(|| {
        let instance = graph_instance.get()?;
        require(!instance.is_submitted(), c::DOCA_ERROR_IN_USE)?;
        instance.user_data.set(user_data);
        Ok(())
    })
}

/// What callbacks are given with the instance.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_instance_get_user_data(
    graph_instance: Handle<Instance>,
    user_data: Out<c::doca_data>,
) -> Code {
    answer(|| user_data.put(graph_instance.get()?.user_data.get()))
}

fn set(instance: &Handle<Instance>, node: &Handle<Node>, data: impl FnOnce(&Kind) -> Outcome<Data>) -> Code {
    answer(|| {
        let (instance, node) = (instance.get()?, node.get()?);
        require(!instance.is_submitted(), c::DOCA_ERROR_BAD_STATE)?;
        let index = instance.graph.own(node)?;
        instance.set(index, data(&node.kind)?);
        Ok(())
    })
}

/// Sets a node's task, of the node's context. Its own callbacks are not called.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_instance_set_ctx_node_data(
    graph_instance: Handle<Instance>,
    node: Handle<Node>,
    task: Handle<Head>,
) -> Code {
    set(&graph_instance, &node, |kind| {
        let owner = task.get()?.owner()?;
        match kind {
            Kind::Context(context)
                if context.upgrade().is_some_and(|context| Rc::ptr_eq(&context, &owner)) =>
            {
                Ok(Data::Task(task))
            }
            _ => Err(c::DOCA_ERROR_NOT_PERMITTED),
        }
    })
}

/// Sets what a node's function is called with.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_instance_set_user_node_data(
    graph_instance: Handle<Instance>,
    node: Handle<Node>,
    cookie: *mut c_void,
) -> Code {
    set(&graph_instance, &node, |kind| match kind {
        Kind::User(_) => Ok(Data::Cookie(cookie)),
        _ => Err(c::DOCA_ERROR_NOT_PERMITTED),
    })
}

/// Sets an instance of a node's graph.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_instance_set_sub_graph_node_data(
    graph_instance: Handle<Instance>,
    node: Handle<Node>,
    sub_graph_instance: Handle<Instance>,
) -> Code {
    set(&graph_instance, &node, |kind| {
        let instance = sub_graph_instance.rc()?;
        match kind {
            Kind::Graph(graph) if Rc::ptr_eq(graph, &instance.graph) && !instance.is_submitted() => {
                Ok(Data::Instance(instance))
            }
            _ => Err(c::DOCA_ERROR_NOT_PERMITTED),
        }
    })
}

/// Runs an instance, by progress of the graph's progress engine.
#[unsafe(no_mangle)]
extern "C" fn doca_graph_instance_submit(graph_instance: Handle<Instance>) -> Code {
    answer(|| graph_instance.rc()?.submit())
}
