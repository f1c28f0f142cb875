//! Instances of graphs.
#![expect(unsafe_code, reason = "the program's callbacks")]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::rc::{Rc, Weak};

use super::{Graph, NodeKind, Step};
use crate::c_abi::{Code, Handle, INVALID, Mark, NO_DATA, Outcome, c, object, pointer_to, require};
use crate::task::{Head, Submit, TaskOwner};

/// An instance: `struct doca_graph_instance`.
pub(crate) struct Instance {
    mark: Mark,
    this: Weak<Self>,
    pub(super) graph: Rc<Graph>,
    data: RefCell<Vec<Option<Data>>>,
    pub(super) user_data: Cell<c::doca_data>,
    /// State of the nodes while the instance is submitted.
    run: RefCell<Option<Run>>,
    /// The instance that runs this instance as a node, and the node's index.
    parent: RefCell<Option<(Rc<Self>, usize)>>,
    /// Number of instances in which this instance is the data of a node.
    parents: Cell<u32>,
}

#[derive(Clone)]
pub(super) enum Data {
    Task(Handle<Head>),
    Cookie(*mut c_void),
    Instance(Rc<Instance>),
}

struct Run {
    /// For each node, the number of nodes that it waits for.
    waits: Vec<usize>,
    /// Number of nodes that have not ended.
    left: usize,
    /// Number of nodes that run, or wait for progress to run.
    running: usize,
    status: Code,
}

object!(Instance, 0x96_02_00_01);

impl Instance {
    pub(super) fn new(graph: Rc<Graph>) -> Outcome<Rc<Self>> {
        require(graph.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        let made = graph.instances.get();
        require(graph.conf.get().is_some_and(|conf| made < conf.instances), c::DOCA_ERROR_NO_MEMORY)?;
        graph.instances.set(made + 1);
        let nodes = graph.nodes.borrow().len();
        Ok(Rc::new_cyclic(|this| Self {
            mark: Mark::of::<Self>(),
            this: this.clone(),
            graph,
            data: RefCell::new(vec![None; nodes]),
            user_data: Cell::new(NO_DATA),
            run: RefCell::new(None),
            parent: RefCell::new(None),
            parents: Cell::new(0),
        }))
    }

    pub(super) fn is_submitted(&self) -> bool {
        self.run.borrow().is_some()
    }

    /// Returns `Err(IN_USE)` if this instance is submitted, or is a node of another instance.
    pub(super) fn require_unused(&self) -> Outcome {
        require(!self.is_submitted() && self.parents.get() == 0, c::DOCA_ERROR_IN_USE)
    }

    /// Releases the instances that are data of nodes, when this instance is destroyed.
    pub(super) fn clear(&self) {
        for data in self.data.take().into_iter().flatten() {
            if let Data::Instance(instance) = data {
                instance.parents.set(instance.parents.get() - 1);
            }
        }
        self.graph.instances.set(self.graph.instances.get() - 1);
    }

    /// Sets the data of a node.
    pub(super) fn set(&self, node: usize, data: Data) {
        if let Data::Instance(instance) = &data {
            instance.parents.set(instance.parents.get() + 1);
        }
        if let Some(Data::Instance(before)) = self.data.borrow_mut()[node].replace(data) {
            before.parents.set(before.parents.get() - 1);
        }
    }

    /// Starts the nodes without predecessors. On an error, no node runs.
    pub(super) fn submit(&self) -> Outcome {
        require(!self.is_submitted(), c::DOCA_ERROR_IN_USE)?;
        require(self.data.borrow().iter().all(Option::is_some), INVALID)?;
        let nodes = self.data.borrow().len();
        let mut waits = vec![0; nodes];
        for (_, to) in &*self.graph.edges.borrow() {
            waits[*to] += 1;
        }
        let roots: Vec<_> = (0..nodes).filter(|&node| waits[node] == 0).collect();
        let run = Run { waits, left: nodes, running: 0, status: c::DOCA_SUCCESS };
        self.run.replace(Some(run));
        for (place, &node) in roots.iter().enumerate() {
            match self.begin(node) {
                Err(code) if place == 0 => {
                    self.run.replace(None);
                    return Err(code);
                }
                // Other nodes run already. The instance fails when these nodes have ended.
                Err(code) => self.node_ended(node, code),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn count_running(&self) {
        if let Some(run) = &mut *self.run.borrow_mut() {
            run.running += 1;
        }
    }

    /// Runs a node, now or in a later progress call.
    fn begin(&self, node: usize) -> Outcome {
        let this = self.this.upgrade().ok_or(INVALID)?;
        let data = self.data.borrow()[node].clone();
        match data {
            Some(Data::Task(task)) => {
                match self.submit_task(&this, node, task) {
                    // The task's context is full. A later progress call submits the task again.
                    Err(c::DOCA_ERROR_AGAIN) => self.graph.later(Step::Run(this, node)),
                    other => other?,
                }
            }
            // The program's functions run only in progress calls.
            Some(Data::Cookie(_)) => self.graph.later(Step::Run(this, node)),
            Some(Data::Instance(instance)) => {
                instance.parent.replace(Some((this, node)));
                let submitted = instance.submit();
                if submitted.is_err() {
                    instance.parent.replace(None);
                }
                submitted?;
            }
            None => return Err(INVALID),
        }
        self.count_running();
        Ok(())
    }

    fn submit_task(&self, this: &Rc<Self>, node: usize, task: Handle<Head>) -> Outcome {
        let head = task.get()?;
        require(head.holder.get() == TaskOwner::Program, c::DOCA_ERROR_BAD_STATE)?;
        let follower = Rc::clone(this);
        head.follow(move |status| follower.ended(node, status));
        let how = Submit { flush: true, coalesce: false, validate: false };
        let submitted = head.owner().and_then(|owner| owner.submit_task(head, how));
        match submitted {
            Ok(()) => head.holder.set(TaskOwner::Graph),
            Err(_) => head.follow_no_more(),
        }
        submitted
    }

    /// Records the end of a node that is not counted as running, and starts the nodes that waited only for
    /// it.
    fn node_ended(&self, node: usize, status: Code) {
        let next = {
            let mut run = self.run.borrow_mut();
            let Some(run) = &mut *run else { return };
            run.left -= 1;
            if run.status == c::DOCA_SUCCESS {
                run.status = status;
            }
            let mut next = Vec::new();
            for (_, to) in self.graph.edges.borrow().iter().filter(|edge| edge.0 == node) {
                run.waits[*to] -= 1;
                // After a failure, no new node begins.
                if run.waits[*to] == 0 && run.status == c::DOCA_SUCCESS {
                    next.push(*to);
                }
            }
            next
        };
        for node in next {
            if let Err(code) = self.begin(node) {
                self.node_ended(node, code);
            }
        }
        self.finish();
    }

    /// Ends the run if all nodes have ended, or if a node has failed and no node runs.
    fn finish(&self) {
        let over = match &*self.run.borrow() {
            Some(run) => run.running == 0 && (run.left == 0 || run.status != c::DOCA_SUCCESS),
            None => false,
        };
        if !over {
            return;
        }
        let status = self.run.take().map_or(c::DOCA_SUCCESS, |run| run.status);
        match (self.parent.take(), self.this.upgrade()) {
            (Some((parent, node)), _) => parent.ended(node, status),
            (None, Some(this)) => self.graph.later(Step::Tell(this, status)),
            (None, None) => {}
        }
    }

    /// Handles the end of a node that is counted as running.
    fn ended(&self, node: usize, status: Code) {
        if let Some(run) = &mut *self.run.borrow_mut() {
            run.running -= 1;
        }
        self.node_ended(node, status);
    }

    /// Runs a node in a progress call. Returns `true` if the node ran or ended.
    pub(super) fn run(&self, node: usize) -> bool {
        let data = self.data.borrow()[node].clone();
        match data {
            Some(Data::Cookie(cookie)) => {
                let nodes = self.graph.nodes.borrow();
                let NodeKind::User(callback) = nodes[node].kind else { return false };
                drop(nodes);
                // SAFETY: the program registered this function for the node, and set this argument for it.
                let status = unsafe { callback(cookie) };
                self.ended(node, status);
                true
            }
            Some(Data::Task(task)) => {
                let Some(this) = self.this.upgrade() else { return false };
                match self.submit_task(&this, node, task) {
                    Err(c::DOCA_ERROR_AGAIN) => {
                        self.graph.later(Step::Run(this, node));
                        false
                    }
                    Err(code) => {
                        self.ended(node, code);
                        true
                    }
                    Ok(()) => true,
                }
            }
            _ => false,
        }
    }

    /// Calls the program's callback for the end of the instance.
    pub(super) fn tell(&self, status: Code) {
        let Some(conf) = self.graph.conf.get() else { return };
        let callback = if status == c::DOCA_SUCCESS { conf.completed } else { conf.failed };
        // SAFETY: the program registered this function for instances of this graph, and `self` lives during
        // the call.
        unsafe { callback(pointer_to(self), self.user_data.get(), self.graph.user_data.get()) }
    }
}
