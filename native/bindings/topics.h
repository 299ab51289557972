// Each binding file defines one init function; module.cpp calls them all.
#pragma once

#include <nanobind/nanobind.h>

void init_attention(nanobind::module_& module);
void init_cpu(nanobind::module_& module);
void init_engine(nanobind::module_& module);
void init_ranking(nanobind::module_& module);
void init_data(nanobind::module_& module);
void init_collector(nanobind::module_& module);
void init_encoder(nanobind::module_& module);
void init_training(nanobind::module_& module);
void init_pairs(nanobind::module_& module);
void init_quadratic(nanobind::module_& module);
void init_information(nanobind::module_& module);
