//! A module written byte by byte: the encoders of the ecosystem refuse, or take memory for, some of what bombs are made of.

pub const I32: u8 = 0x7f;
pub const I64: u8 = 0x7e;
pub const V128: u8 = 0x7b;

fn leb(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            return out.push(byte);
        }
        out.push(byte | 0x80);
    }
}

fn signed_leb(out: &mut Vec<u8>, mut value: i64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if (value == 0 && byte & 0x40 == 0) || (value == -1 && byte & 0x40 != 0) {
            return out.push(byte);
        }
        out.push(byte | 0x80);
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    leb(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// A function body.
pub struct Code {
    bytes: Vec<u8>,
}

impl Code {
    /// With locals as runs of a count and a type.
    pub fn new(locals: &[(u32, u8)]) -> Self {
        let mut bytes = Vec::new();
        leb(&mut bytes, locals.len() as u64);
        for &(count, ty) in locals {
            leb(&mut bytes, count.into());
            bytes.push(ty);
        }
        Self { bytes }
    }

    pub fn op(&mut self, byte: u8) -> &mut Self {
        self.bytes.push(byte);
        self
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        leb(&mut self.bytes, value.into());
        self
    }

    pub fn get(&mut self, local: u32) -> &mut Self {
        self.op(0x20).u32(local)
    }

    pub fn set(&mut self, local: u32) -> &mut Self {
        self.op(0x21).u32(local)
    }

    pub fn tee(&mut self, local: u32) -> &mut Self {
        self.op(0x22).u32(local)
    }

    pub fn i32(&mut self, value: u32) -> &mut Self {
        self.op(0x41);
        signed_leb(&mut self.bytes, i64::from(value.cast_signed()));
        self
    }

    pub fn drop(&mut self) -> &mut Self {
        self.op(0x1a)
    }

    pub fn call(&mut self, function: u32) -> &mut Self {
        self.op(0x10).u32(function)
    }

    pub fn memarg(&mut self, align: u32, offset: u32) -> &mut Self {
        self.u32(align).u32(offset)
    }

    pub fn load32(&mut self, offset: u32) -> &mut Self {
        self.op(0x28).memarg(0, offset)
    }

    pub fn store32(&mut self, offset: u32) -> &mut Self {
        self.op(0x36).memarg(0, offset)
    }

    /// `i64.load32_s`
    pub fn load_i64_32s(&mut self, offset: u32) -> &mut Self {
        self.op(0x34).memarg(0, offset)
    }

    fn block_type(&mut self, ty: Option<u32>) -> &mut Self {
        match ty {
            None => self.op(0x40),
            Some(ty) => {
                signed_leb(&mut self.bytes, ty.into());
                self
            }
        }
    }

    pub fn block(&mut self, ty: Option<u32>) -> &mut Self {
        self.op(0x02).block_type(ty)
    }

    pub fn loop_(&mut self, ty: Option<u32>) -> &mut Self {
        self.op(0x03).block_type(ty)
    }

    pub fn if_(&mut self, ty: Option<u32>) -> &mut Self {
        self.op(0x04).block_type(ty)
    }

    pub fn else_(&mut self) -> &mut Self {
        self.op(0x05)
    }

    /// A `try_table` that catches one tag.
    pub fn try_table(&mut self, tag: u32, label: u32) -> &mut Self {
        self.op(0x1f).block_type(None).u32(1).op(0x00).u32(tag).u32(label)
    }

    pub fn end(&mut self) -> &mut Self {
        self.op(0x0b)
    }

    pub fn br(&mut self, depth: u32) -> &mut Self {
        self.op(0x0c).u32(depth)
    }

    pub fn br_if(&mut self, depth: u32) -> &mut Self {
        self.op(0x0d).u32(depth)
    }

    pub fn br_table(&mut self, targets: &[u32], default: u32) -> &mut Self {
        self.op(0x0e).u32(targets.len() as u32);
        for &target in targets {
            self.u32(target);
        }
        self.u32(default)
    }
}

/// A module with one memory (unless it is made wide), in parts.
pub struct Module {
    types: Items,
    imports: Items,
    functions: Items,
    tables: Items,
    pub memory_pages: u32,
    wide_memory: Option<u64>,
    tags: Items,
    globals: Items,
    exports: Items,
    elements: Items,
    codes: Items,
    data: Items,
    names: Items,
}

#[derive(Default)]
struct Items {
    count: u32,
    bytes: Vec<u8>,
}

impl Items {
    fn add(&mut self) -> &mut Vec<u8> {
        self.count += 1;
        &mut self.bytes
    }
}

impl Module {
    pub fn new() -> Self {
        Self {
            types: Items::default(),
            imports: Items::default(),
            functions: Items::default(),
            tables: Items::default(),
            memory_pages: 1,
            wide_memory: None,
            tags: Items::default(),
            globals: Items::default(),
            exports: Items::default(),
            elements: Items::default(),
            codes: Items::default(),
            data: Items::default(),
            names: Items::default(),
        }
    }

    /// A module of one exported function.
    pub fn of_function(params: &[u8], results: &[u8], code: Code) -> Vec<u8> {
        let mut module = Self::new();
        let ty = module.ty(params, results);
        module.function(ty, code);
        module.export("f", 0);
        module.finish()
    }

    pub fn ty(&mut self, params: &[u8], results: &[u8]) -> u32 {
        let number = self.types.count;
        let out = self.types.add();
        out.push(0x60);
        for types in [params, results] {
            leb(out, types.len() as u64);
            out.extend_from_slice(types);
        }
        number
    }

    pub fn import(&mut self, name: &str, ty: u32) {
        let out = self.imports.add();
        text(out, "m");
        text(out, name);
        out.push(0);
        leb(out, ty.into());
    }

    pub fn function(&mut self, ty: u32, mut code: Code) {
        code.end();
        leb(self.functions.add(), ty.into());
        let out = self.codes.add();
        leb(out, code.bytes.len() as u64);
        out.extend_from_slice(&code.bytes);
    }

    pub fn table(&mut self, size: u32) {
        let out = self.tables.add();
        out.extend_from_slice(&[0x70, 0]);
        leb(out, size.into());
    }

    pub fn wide_memory(&mut self, pages: u64) {
        self.wide_memory = Some(pages);
    }

    pub fn tag(&mut self, ty: u32) {
        let out = self.tags.add();
        out.push(0);
        leb(out, ty.into());
    }

    pub fn global(&mut self, value: u32) {
        let out = self.globals.add();
        out.extend_from_slice(&[I32, 1, 0x41]);
        signed_leb(out, value.into());
        out.push(0x0b);
    }

    pub fn export(&mut self, name: &str, function: u32) {
        let out = self.exports.add();
        text(out, name);
        out.push(0);
        leb(out, function.into());
    }

    pub fn element(&mut self, offset: u32, functions: &[u32]) {
        let out = self.elements.add();
        out.extend_from_slice(&[0, 0x41]);
        signed_leb(out, offset.into());
        out.push(0x0b);
        leb(out, functions.len() as u64);
        for &function in functions {
            leb(out, function.into());
        }
    }

    pub fn data(&mut self, offset: u32, bytes: &[u8]) {
        let out = self.data.add();
        out.extend_from_slice(&[0, 0x41]);
        signed_leb(out, offset.cast_signed().into());
        out.push(0x0b);
        leb(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }

    pub fn name(&mut self, function: u32, name: &str) {
        let out = self.names.add();
        leb(out, function.into());
        text(out, name);
    }

    pub fn finish(self) -> Vec<u8> {
        let mut memory = Items::default();
        match self.wide_memory {
            None => {
                memory.add().push(0);
                leb(&mut memory.bytes, self.memory_pages.into());
            }
            Some(pages) => {
                memory.add().push(4);
                leb(&mut memory.bytes, pages);
            }
        }
        let mut out = b"\0asm\x01\0\0\0".to_vec();
        let sections = [
            (1, self.types),
            (2, self.imports),
            (3, self.functions),
            (4, self.tables),
            (5, memory),
            (13, self.tags),
            (6, self.globals),
            (7, self.exports),
            (9, self.elements),
            (10, self.codes),
            (11, self.data),
        ];
        for (id, items) in sections.into_iter().filter(|(_, items)| items.count > 0) {
            out.push(id);
            counted(&mut out, items);
        }
        if self.names.count > 0 {
            let mut functions = vec![1];
            counted(&mut functions, self.names);
            let mut section = Vec::new();
            text(&mut section, "name");
            section.extend_from_slice(&functions);
            out.push(0);
            leb(&mut out, section.len() as u64);
            out.extend_from_slice(&section);
        }
        out
    }
}

/// Length, number of items, items.
fn counted(out: &mut Vec<u8>, items: Items) {
    let mut body = Vec::with_capacity(items.bytes.len() + 5);
    leb(&mut body, items.count.into());
    body.extend_from_slice(&items.bytes);
    leb(out, body.len() as u64);
    out.extend_from_slice(&body);
}
