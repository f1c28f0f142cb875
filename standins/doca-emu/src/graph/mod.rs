//! `doca_graph.h`: tasks and functions that wait for one another.
#![expect(unsafe_code, reason = "functions that C calls by name")]

mod instance;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::rc::{Rc, Weak};

use instance::Data;

use crate::c_abi::{
    Code, Handle, INVALID, Mark, NO_DATA, Out, Outcome, c, c_calls, getters, object, require,
};
use crate::ctx::{Context, Ctx, State};
use crate::pe::{Pe, Ready};
use crate::task::{Head, Submit};
pub(crate) use instance::Instance;

/// A graph: `struct doca_graph`. Its progress engine treats the graph as a context.
pub(crate) struct Graph {
    mark: Mark,
    ctx: Ctx,
    this: Weak<Self>,
    nodes: RefCell<Vec<Rc<Node>>>,
    edges: RefCell<Vec<(usize, usize)>>,
    conf: Cell<Option<Conf>>,
    user_data: Cell<c::doca_data>,
    started: Cell<bool>,
    instances: Cell<u32>,
    steps: RefCell<VecDeque<Step>>,
}

#[derive(Clone, Copy)]
struct Conf {
    completed: Callback,
    failed: Callback,
    instances: u32,
}

type Callback = unsafe extern "C" fn(*mut c::doca_graph_instance, c::doca_data, c::doca_data);
type UserCallback = unsafe extern "C" fn(*mut std::ffi::c_void) -> Code;

/// A step that the next progress call does.
enum Step {
    Run(Rc<Instance>, usize),
    Tell(Rc<Instance>, Code),
}

/// A node: `struct doca_graph_node`.
pub(crate) struct Node {
    mark: Mark,
    graph: Weak<Graph>,
    index: usize,
    kind: NodeKind,
}

enum NodeKind {
    Context(Weak<dyn Context>),
    User(UserCallback),
    Graph(Rc<Graph>),
}

object!(Graph, 0x96_00_00_01);

object!(Node, 0x96_01_00_01);

impl Graph {
    fn new(pe: &Rc<Pe>) -> Outcome<Rc<Self>> {
        let graph = Rc::new_cyclic(|this: &Weak<Self>| Self {
            mark: Mark::of::<Self>(),
            ctx: Ctx::new(this.clone()),
            this: this.clone(),
            nodes: RefCell::default(),
            edges: RefCell::default(),
            conf: Cell::new(None),
            user_data: Cell::new(NO_DATA),
            started: Cell::new(false),
            instances: Cell::new(0),
            steps: RefCell::default(),
        });
        graph.ctx.connect(pe)?;
        Ok(graph)
    }

    fn require_stopped(&self) -> Outcome {
        require(!self.started.get(), c::DOCA_ERROR_BAD_STATE)
    }

    fn add(&self, kind: NodeKind) -> Handle<Node> {
        let mut nodes = self.nodes.borrow_mut();
        let node = Node { mark: Mark::of::<Node>(), graph: self.this.clone(), index: nodes.len(), kind };
        nodes.push(Rc::new(node));
        // SAFETY: the graph keeps its nodes in boxes until C destroys it, and C uses no node after that.
        unsafe { Handle::of(&*nodes[nodes.len() - 1]) }
    }

    fn own(&self, node: &Node) -> Outcome<usize> {
        let own = std::ptr::eq(node.graph.as_ptr(), self);
        require(own, c::DOCA_ERROR_NOT_PERMITTED)?;
        Ok(node.index)
    }

    /// Makes `to` wait for `from`.
    fn depend(&self, from: usize, to: usize) -> Outcome {
        let mut edges = self.edges.borrow_mut();
        // All nodes that wait for `to`, directly or indirectly.
        let mut reached = vec![to];
        let mut at = 0;
        while let Some(&node) = reached.get(at) {
            require(node != from, c::DOCA_ERROR_NOT_PERMITTED)?;
            for (_, next) in edges.iter().filter(|edge| edge.0 == node) {
                if !reached.contains(next) {
                    reached.push(*next);
                }
            }
            at += 1;
        }
        if !edges.contains(&(from, to)) {
            edges.push((from, to));
        }
        Ok(())
    }

    fn start(&self) -> Outcome {
        if self.started.get() {
            return Ok(());
        }
        require(self.conf.get().is_some(), INVALID)?;
        let nodes = self.nodes.borrow();
        let mut contexts = nodes.iter().filter_map(|node| match &node.kind {
            NodeKind::Context(context) => Some(context),
            _ => None,
        });
        require(contexts.clone().next().is_some(), c::DOCA_ERROR_BAD_STATE)?;
        let runs = |context: &Weak<dyn Context>| {
            context.upgrade().is_some_and(|context| context.ctx().state() == State::Running)
        };
        require(contexts.all(runs), c::DOCA_ERROR_BAD_STATE)?;
        self.started.set(true);
        Ok(())
    }

    fn stop(&self) -> Outcome {
        require(self.instances.get() == 0, c::DOCA_ERROR_IN_USE)?;
        self.started.set(false);
        Ok(())
    }

    fn later(&self, step: Step) {
        self.steps.borrow_mut().push_back(step);
        if let Some(pe) = self.ctx.pe() {
            pe.wake();
        }
    }
}

/// A graph implements `Context` only to make progress.
impl Context for Graph {
    fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    fn start(&self) -> Outcome<State> {
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    }

    fn is_drained(&self) -> bool {
        true
    }

    fn progress(&self) -> bool {
        let next = self.steps.borrow_mut().pop_front();
        match next {
            Some(Step::Run(instance, node)) => instance.run(node),
            Some(Step::Tell(instance, status)) => {
                instance.tell(status);
                true
            }
            None => false,
        }
    }

    fn submit(&self, _task: &Head, _how: Submit) -> Outcome {
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    }

    fn put(&self, _task: &Head) {}

    fn ready(&self) -> Ready {
        if self.steps.borrow().is_empty() { Ready::WhenWoken } else { Ready::Now }
    }
}

fn set(
    instance: &Handle<Instance>,
    node: &Handle<Node>,
    data: impl FnOnce(&NodeKind) -> Outcome<Data>,
) -> Outcome {
    let (instance, node) = (instance.get()?, node.get()?);
    require(!instance.is_submitted(), c::DOCA_ERROR_BAD_STATE)?;
    let index = instance.graph.own(node)?;
    instance.set(index, data(&node.kind)?);
    Ok(())
}

getters! {
    doca_graph_get_user_data(graph: Graph) -> c::doca_data { graph.user_data.get() }
    doca_graph_instance_get_user_data(graph_instance: Instance) -> c::doca_data {
        graph_instance.user_data.get()
    }
}

c_calls! {
    /// Makes a graph without nodes, which runs on the progress engine.
    fn doca_graph_create(pe: Handle<Pe>, graph: Out<Handle<Graph>>) {
        graph.make(|| Ok(Handle::give_rc(Graph::new(&pe.rc()?)?)))
    }
    /// Destroys a graph that is stopped.
    fn doca_graph_destroy(graph: Handle<Graph>) {
        let it = graph.get()?;
        it.require_stopped()?;
        // The handle and this call hold one reference each. Further references are those of graphs that have
        // this graph as a node.
        require(Rc::strong_count(&graph.rc()?) <= 2, c::DOCA_ERROR_IN_USE)?;
        it.ctx.disconnect()?;
        graph.take_rc().map(drop)
    }
    /// Sets the callbacks of instances, and the maximum number of instances.
    fn doca_graph_set_conf(
        graph: Handle<Graph>,
        completed: Option<Callback>,
        failed: Option<Callback>,
        instances: u32,
    ) {
        let graph = graph.get()?;
        let (completed, failed) = (completed.ok_or(INVALID)?, failed.ok_or(INVALID)?);
        require(instances > 0, INVALID)?;
        graph.require_stopped()?;
        graph.conf.set(Some(Conf { completed, failed, instances }));
        Ok(())
    }
    fn doca_graph_set_user_data(graph: Handle<Graph>, user_data: c::doca_data) {
        let graph = graph.get()?;
        graph.require_stopped()?;
        graph.user_data.set(user_data);
        Ok(())
    }
    fn doca_graph_node_create_from_ctx(graph: Handle<Graph>, ctx: Handle<Ctx>, node: Out<Handle<Node>>) {
        node.check()?;
        let (graph, ctx) = (graph.get()?, ctx.get()?);
        graph.require_stopped()?;
        node.put(graph.add(NodeKind::Context(ctx.this().clone())))
    }
    fn doca_graph_node_create_from_user(
        graph: Handle<Graph>,
        callback: Option<UserCallback>,
        node: Out<Handle<Node>>,
    ) {
        node.check()?;
        let (graph, callback) = (graph.get()?, callback.ok_or(INVALID)?);
        graph.require_stopped()?;
        node.put(graph.add(NodeKind::User(callback)))
    }
    /// Adds a node that runs another graph, which must be started.
    fn doca_graph_node_create_from_graph(
        graph: Handle<Graph>,
        sub_graph: Handle<Graph>,
        node: Out<Handle<Node>>,
    ) {
        node.check()?;
        let (graph, sub_graph) = (graph.get()?, sub_graph.rc()?);
        // All graphs below a started graph are started, and this graph is not, so no other cycle is
        // possible.
        require(!std::ptr::eq(graph, &*sub_graph), c::DOCA_ERROR_NOT_PERMITTED)?;
        require(!graph.started.get() && sub_graph.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        node.put(graph.add(NodeKind::Graph(sub_graph)))
    }
    /// Makes the node `to` wait for the node `from`. Returns `NOT_PERMITTED` if that makes a cycle.
    fn doca_graph_add_dependency(graph: Handle<Graph>, from: Handle<Node>, to: Handle<Node>) {
        let graph = graph.get()?;
        let own = |node: &Node| graph.own(node).map_err(|_| INVALID);
        let (from, to) = (own(from.get()?)?, own(to.get()?)?);
        graph.require_stopped()?;
        graph.depend(from, to)
    }
    /// Starts a graph. The contexts of its nodes must run.
    fn doca_graph_start(graph: Handle<Graph>) { graph.get()?.start() }
    /// Stops a graph that has no instances.
    fn doca_graph_stop(graph: Handle<Graph>) { graph.get()?.stop() }
    /// Makes an instance of a started graph.
    fn doca_graph_instance_create(graph: Handle<Graph>, graph_instance: Out<Handle<Instance>>) {
        graph_instance.make(|| Ok(Handle::give_rc(Instance::new(graph.rc()?)?)))
    }
    /// Destroys an instance. Returns `IN_USE` if the instance is submitted or is a node of another instance.
    fn doca_graph_instance_destroy(graph_instance: Handle<Instance>) {
        graph_instance.get()?.require_unused()?;
        graph_instance.take_rc()?.clear();
        Ok(())
    }
    fn doca_graph_instance_set_user_data(graph_instance: Handle<Instance>, user_data: c::doca_data) {
        let instance = graph_instance.get()?;
        require(!instance.is_submitted(), c::DOCA_ERROR_IN_USE)?;
        instance.user_data.set(user_data);
        Ok(())
    }
    /// Sets the task that a node submits. The task must belong to the node's context. Its own callbacks are
    /// not called.
    fn doca_graph_instance_set_ctx_node_data(
        graph_instance: Handle<Instance>,
        node: Handle<Node>,
        task: Handle<Head>,
    ) {
        set(&graph_instance, &node, |kind| {
            let owner = task.get()?.owner()?;
            match kind {
                NodeKind::Context(own) if std::ptr::addr_eq(own.as_ptr(), Rc::as_ptr(&owner)) => {
                    Ok(Data::Task(task))
                }
                _ => Err(c::DOCA_ERROR_NOT_PERMITTED),
            }
        })
    }
    /// Sets the argument of a node's function.
    fn doca_graph_instance_set_user_node_data(
        graph_instance: Handle<Instance>,
        node: Handle<Node>,
        cookie: *mut c_void,
    ) {
        set(&graph_instance, &node, |kind| match kind {
            NodeKind::User(_) => Ok(Data::Cookie(cookie)),
            _ => Err(c::DOCA_ERROR_NOT_PERMITTED),
        })
    }
    /// Sets the instance that a node runs. It must be an instance of the node's graph.
    fn doca_graph_instance_set_sub_graph_node_data(
        graph_instance: Handle<Instance>,
        node: Handle<Node>,
        sub_graph_instance: Handle<Instance>,
    ) {
        set(&graph_instance, &node, |kind| {
            let instance = sub_graph_instance.rc()?;
            match kind {
                NodeKind::Graph(graph) if Rc::ptr_eq(graph, &instance.graph) && !instance.is_submitted() => {
                    Ok(Data::Instance(instance))
                }
                _ => Err(c::DOCA_ERROR_NOT_PERMITTED),
            }
        })
    }
    /// Submits an instance, which runs while the graph's progress engine makes progress.
    fn doca_graph_instance_submit(graph_instance: Handle<Instance>) { graph_instance.rc()?.submit() }
}
