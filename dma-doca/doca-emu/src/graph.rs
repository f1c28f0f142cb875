//! `doca_graph.h`: tasks and functions that wait for one another.

mod calls;
mod instance;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use crate::c_abi::{Code, Handle, INVALID, Mark, NO_DATA, Outcome, c, object, require};
use crate::ctx::{Context, Ctx, State};
use crate::pe::{Pe, Ready};
use crate::task::{Head, Submit};
pub(crate) use instance::Instance;

/// A graph: `struct doca_graph`. Its progress engine sees a context.
pub(crate) struct Graph {
    mark: Mark,
    ctx: Ctx,
    this: Weak<Self>,
    nodes: RefCell<Vec<Rc<Node>>>,
    /// Pairs of from and to.
    edges: RefCell<Vec<(usize, usize)>>,
    conf: Cell<Option<Conf>>,
    user_data: Cell<c::doca_data>,
    started: Cell<bool>,
    /// Instances that are not destroyed.
    instances: Cell<u32>,
    /// Pending steps.
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

/// Something that waits for progress.
enum Step {
    /// Run a node.
    Run(Rc<Instance>, usize),
    /// Tell the program that an instance ended.
    Tell(Rc<Instance>, Code),
}

/// A node: `struct doca_graph_node`.
pub(crate) struct Node {
    mark: Mark,
    graph: Weak<Graph>,
    index: usize,
    kind: Kind,
}

enum Kind {
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

    fn add(&self, kind: Kind) -> Handle<Node> {
        let mut nodes = self.nodes.borrow_mut();
        let node = Node { mark: Mark::of::<Node>(), graph: self.this.clone(), index: nodes.len(), kind };
        nodes.push(Rc::new(node));
        Handle::of(&*nodes[nodes.len() - 1])
    }

    /// The place of a node of this graph.
    fn own(&self, node: &Node) -> Outcome<usize> {
        let own = std::ptr::eq(node.graph.as_ptr(), self);
        require(own, c::DOCA_ERROR_NOT_PERMITTED)?;
        Ok(node.index)
    }

    /// Has `to` wait for `from`.
    fn depend(&self, from: usize, to: usize) -> Outcome {
        let mut edges = self.edges.borrow_mut();
        // All nodes behind `to`.
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
            Kind::Context(context) => Some(context),
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

/// A graph is a context for its progress alone.
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
