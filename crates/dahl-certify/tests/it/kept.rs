//! Certificates that were made when the checker was a module of `dahl`.

use dahl_certify::{Certificate, certify};

/// All combinations of units, synchronous and stale; with labels; with multipliers of units.
#[test]
fn certificates_of_earlier_versions_hold() {
    let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates");
    for (name, inequalities) in [
        ("alexnet-gpu-server", 33_702_368),
        ("alexnet-laptop-stale", 831_049),
        ("vgg16-laptop", 8_388_814),
        ("alexnet-zeus-20", 239_685),
    ] {
        let text = std::fs::read_to_string(kept.join(format!("{name}.json"))).unwrap();
        let proof: Certificate = serde_json::from_str(&text).unwrap();
        assert_eq!(certify(&proof), Ok(inequalities), "{name}");
    }
}
