#include "topics.h"

NB_MODULE(_native, module) {
    module.doc() = "fm2's native part.";
    nanobind::set_leak_warnings(false);  // at exit a traceback or a cache may still hold objects, which is nobody's leak
    init_cpu(module);
    init_data(module);
    init_collector(module);
    init_encoder(module);
    init_training(module);
    init_pairs(module);
    init_quadratic(module);
    init_attention(module);
    init_engine(module);
    init_ranking(module);
    init_information(module);
}
