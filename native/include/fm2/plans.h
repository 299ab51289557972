// The ways in which a compiled model is scored, and how its features' rows lie in memory.
//
// A row holds everything that a feature brings to a prediction, in one piece. Its numbers are float32, float16, or int8 with a scale per
// row; the linear weight is always float32. Numbers that are read eight at a time are padded with zeros to a multiple of eight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fm2 {

enum class Number : std::uint8_t { f32, f16, i8 };

inline std::size_t number_size(Number number) { return number == Number::f32 ? 4 : number == Number::f16 ? 2 : 1; }
inline std::size_t padded(std::size_t count) { return (count + 7) / 8 * 8; }

// How one row lies: numbers of a first part (padded), numbers of a second part, then the linear weight, then a scale for each part.
struct RowLayout {
    std::size_t first, second;  // how many numbers
    std::size_t second_at, linear_at, scales_at, stride;  // bytes

    RowLayout(Number number, std::size_t first, std::size_t second);
};

// Writes rows [rows]: `first` [rows, layout.first] and `second` [rows, layout.second] (either may be null where it has no numbers) become
// numbers of the type, each part of a row with its own scale where they are int8; `linear` [rows] stays as it is. Returns the largest
// difference between a number and what it has become.
float pack_rows(Number number, const RowLayout& layout, std::size_t rows, const float* first, const float* second, const float* linear,
                std::byte* out, std::size_t threads);

// Some of the numbers before a field's own, which it meets: `length` of them, a multiple of eight. The last eight begin before the field
// does, and may reach into its own place or beyond; its matrix is zero there.
struct Stretch {
    std::uint32_t begin, length;
};

// Pair terms through prefixes. The embeddings of a row stand side by side in an order of the fields, which the plan chooses. The later
// field p of a pair meets all fields before it at once: its term is <M[p]ᵀ v_p, prefix>, where prefix is what stands before v_p, or only
// those stretches of it where M[p] is not zero. The product M[p]ᵀ v_p depends on the feature alone: it is cached for ids below `cached`,
// and computed for others. With nothing cached this applies half of S to the row; with everything cached it is the paper's section 4.2,
// with the lower dimension of each pair (4.3) if the fields are ordered by their dimensions.
struct PrefixField {  // first what scoring with cached products reads, in few cache lines
    std::size_t field;                       // its column of ids
    std::size_t cached;                      // how many of its features have cached products
    std::size_t dim, start;                  // its columns in the row of embeddings: [start, start + dim)
    std::uint32_t first_stretch, stretches;  // of the plan's: those it meets, one behind the other in products and matrix
    RowLayout whole;                         // of the features with cached products
    const std::byte* whole_rows;
    RowLayout rest;  // of those without
    const std::byte* rest_rows;
    const float* matrix;  // M[p]: [dim, whole.first], or the diagonals of its blocks [whole.first]
    std::size_t size;     // how many features it has
};

struct PrefixPlan {
    std::vector<PrefixField> fields;  // in their order
    std::vector<Stretch> stretches;   // of one field after the other; a field's are sorted, and none overlaps another
    std::size_t columns;              // of ids
    std::size_t width;                // the sum of the dimensions
    Number number;
    bool diagonal;  // blocks of M are diagonal, and all dimensions equal
    float bias;

    std::size_t room() const { return padded(width) + 8; }

    // An entry of the matrix between two fields, whichever comes first.
    float entry(const PrefixField& a, std::size_t i, const PrefixField& b, std::size_t j) const;
};

// Sums and squares: the logit is the sum of the linear weights and Σ_k sign_k (Σ z_k)². A factorization machine is this, and any
// quadratic form through its spectrum. A rank of 0 is logistic regression. With hash_bits, Poly2's pairs are added.
struct SquaresField {
    std::size_t size;
    const std::byte* rows;
};

struct SquaresPlan {
    std::vector<SquaresField> fields;
    RowLayout layout;
    std::size_t rank;
    Number number;
    const float* signs;  // [padded(rank)]
    const float* pairs;  // [2^hash_bits]
    std::int32_t hash_bits;
    float bias;
};

// Field-aware machines: a feature has a vector for every other field; a pair's term is the product of the two that are meant for each
// other. The vector for field j stands at j, or at j - 1 if j comes after the feature's own field.
struct PartnersPlan {
    std::vector<SquaresField> fields;
    RowLayout layout;
    std::size_t dim;
    Number number;
    float bias;
};

}  // namespace fm2
