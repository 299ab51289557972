// What pairs of fields tell of the label: the mutual information I((X_i, X_j); Y) of all of them, in nats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm2 {

// Fills the symmetric matrices [fields, fields] from ids [rows, fields], each below its field's size, and labels of 0 and 1. On the
// diagonal is what one field tells, I(X_i; Y).
//
// information is the plain estimate, of the distribution that the rows have. chance is what it would be on average if the same labels
// stood in any other order: values that occur seldom seem to tell much.
//
// The result is the same for any number of threads. Throws std::out_of_range where an id or a label is.
void mutual_information(const std::int32_t* ids, const std::uint8_t* labels, std::size_t rows, const std::vector<std::int32_t>& sizes,
                        double* information, double* chance, std::size_t threads);

}  // namespace fm2
