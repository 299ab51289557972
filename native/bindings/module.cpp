#include "topics.h"

NB_MODULE(_native, module) {
    module.doc() = "fm2's native part.";
    init_cpu(module);
    init_data(module);
    init_training(module);
    init_pairs(module);
    init_quadratic(module);
}
