//! The price of a split of operators among accelerators and cores under the cost model `max-load`.

use super::Misfit;
use super::foreign::ForeignPlan;
use crate::error::Result;
use crate::planner::baselines::{Device, Load, Operators, device_load};
use std::collections::BTreeMap;

/// Devices with their loads.
#[derive(Clone, Debug, PartialEq)]
pub struct Loads {
    /// The devices that have nodes, in the order of the file.
    pub devices: Vec<Device>,
    /// The largest load.
    pub load: f64,
    /// What it breaks; empty if it is a placement of the model.
    pub misfits: Vec<Misfit>,
}

impl Loads {
    /// The largest possible distance from the optimum, as a part of the load; `None` if the split is
    /// below the lower bound, because it is no placement of the model.
    pub fn gap(&self, lower_bound: f64) -> Option<f64> {
        let gap = (self.load - lower_bound) / self.load.max(f64::MIN_POSITIVE);
        (gap >= -1e-9).then_some(gap.max(0.0))
    }
}

impl ForeignPlan {
    /// The loads of devices on a graph of operators.
    ///
    /// # Errors
    /// If a device or node is unknown, a node is on no device or on several, or there are more devices
    /// than the graph allows.
    pub fn loads(&self, of: &Operators) -> Result<Loads> {
        let places: BTreeMap<i64, usize> =
            of.nodes.iter().enumerate().map(|(i, node)| (node.id, i)).collect();
        let mut device_of: Vec<Option<usize>> = vec![None; of.nodes.len()];
        let mut devices: Vec<Device> = Vec::new();
        for (i, stage) in self.stages.iter().enumerate() {
            let place = |key: &str| format!("stage {i}: {key}");
            let kind = match stage.device.as_deref() {
                Some("accelerator") => Load::Accelerator,
                Some("core") => Load::Core,
                other => {
                    let found = other.map_or("none".to_owned(), |other| format!("{other:?}"));
                    return Err(self.fault(place("device"), "accelerator or core", found));
                }
            };
            let Some(ids) = &stage.nodes else {
                return Err(self.fault(place("nodes"), "ids of nodes of the graph", "none"));
            };
            if ids.is_empty() {
                continue;
            }
            let mut operators = Vec::new();
            for id in ids {
                let Some(&node) = places.get(id) else {
                    return Err(self.fault(
                        place("nodes"),
                        "ids of nodes of the graph",
                        id.to_string(),
                    ));
                };
                if let Some(other) = device_of[node].replace(devices.len()) {
                    let found =
                        format!("node {id} on device {other} and on device {}", devices.len());
                    return Err(self.fault(place("nodes"), "each node on one device", found));
                }
                operators.push(node);
            }
            operators.sort_unstable();
            let load = device_load(of, kind, &operators);
            devices.push(Device { kind, operators, load });
        }
        if let Some(node) = device_of.iter().position(Option::is_none) {
            let found = format!("node {} on none", of.nodes[node].id);
            return Err(self.fault("stages".to_owned(), "each node on one device", found));
        }
        for (kind, most, name) in
            [(Load::Accelerator, of.accelerators, "accelerators"), (Load::Core, of.cores, "cores")]
        {
            let used = devices.iter().filter(|device| device.kind == kind).count();
            if used > most {
                let expected = format!("at most {most} {name}, as the graph says");
                return Err(self.fault("stages".to_owned(), expected, used.to_string()));
            }
        }
        let load = devices.iter().map(|device| device.load).fold(0.0, f64::max);
        let device_of: Vec<usize> = device_of.into_iter().flatten().collect();
        let misfits = misfits(of, &devices, &device_of);
        Ok(Loads { devices, load, misfits })
    }
}

fn misfits(of: &Operators, devices: &[Device], device_of: &[usize]) -> Vec<Misfit> {
    let mut all = Vec::new();
    for (i, device) in devices.iter().enumerate().filter(|(_, d)| d.kind == Load::Accelerator) {
        let bytes: f64 = device.operators.iter().map(|&node| of.nodes[node].bytes).sum();
        if bytes > of.accelerator_bytes {
            all.push(Misfit::Memory {
                stage: i,
                unit: "accelerator".to_owned(),
                needed: bytes,
                there: of.accelerator_bytes,
            });
        }
        let unsupported = |node: &&usize| of.nodes[**node].accelerator.is_none();
        if let Some(&node) = device.operators.iter().find(unsupported) {
            all.push(Misfit::Unsupported { stage: i, node: of.nodes[node].id });
        }
    }
    let mut classes: BTreeMap<i64, usize> = BTreeMap::new();
    for (node, it) in of.nodes.iter().enumerate() {
        if *classes.entry(it.colour).or_insert(device_of[node]) != device_of[node] {
            all.push(Misfit::Parted { class: it.colour });
            break;
        }
    }
    // Edges between devices, by the forward part.
    let mut inputs: Vec<Vec<usize>> = vec![Vec::new(); devices.len()];
    for (to, node) in of.nodes.iter().enumerate().filter(|(_, node)| !node.backward) {
        for &from in node.inputs.iter().filter(|&&from| !of.nodes[from].backward) {
            let (a, b) = (device_of[from], device_of[to]);
            if a != b && !inputs[b].contains(&a) {
                inputs[b].push(a);
            }
        }
    }
    if crate::planner::baselines::in_order(&inputs, &vec![0; devices.len()]).is_none() {
        all.push(Misfit::Circular);
    }
    all
}
