#include "bindings.h"

NB_MODULE(_native, module) {
    module.doc() = "The native module of fm2.";
    nb::set_leak_warnings(false);  // objects that tracebacks or caches hold at exit are not leaks
    init_cpu(module);
    init_data(module);
    init_collector(module);
    init_numbers(module);
    init_encoder(module);
    init_crosses(module);
    init_training(module);
    init_sharding(module);
    init_pairs(module);
    init_layers(module);
    init_engine(module);
    init_network(module);
    init_ranking(module);
    init_calibration(module);
    init_information(module);
    init_serving(module);
}
