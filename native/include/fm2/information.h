// The mutual information I((X_i, X_j); Y) of all pairs of fields and the label, in nats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm2 {

// Computes two symmetric matrices [fields, fields] from ids [rows, fields] and labels of 0 and 1. The diagonal holds the mutual information
// of single fields, I(X_i; Y).
//
// `information` is the plug-in estimate from the empirical distribution of the rows. `chance` is its mean over all permutations of the
// labels: the bias of the estimate, which is large for rare values.
//
// The result does not depend on the number of threads. Throws std::out_of_range if an id or a label is out of range.
void mutual_information(const std::int32_t* ids, const std::uint8_t* labels, std::size_t rows, const std::vector<std::int32_t>& sizes,
                        double* information, double* chance, std::size_t threads);

}  // namespace fm2
