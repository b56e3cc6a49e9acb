def load(path):
    from safetensors.torch import load_file

    network = model()
    weights = load_file(path)
    for weight in weights.values():
        if weight.is_floating_point():
            network.to(weight.dtype)
    network.load_state_dict(weights)
    return network.eval()
